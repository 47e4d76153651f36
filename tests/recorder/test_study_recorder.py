"""Store to a real MLflow database: what is shown, that repeating changes nothing, and crashes at every write."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from driftline.results.curves import TrialCurve
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from service.recorder import bulk_runs, study_lease, study_recorder, trial_runs
from service.recorder.study_lease import StudyLease
from service.recorder.study_recorder import Recorder
from service.recorder.tracking import Tracking, connect
from service.store.store import Store
from tests import mlflow_warnings
from tests.new_stores import empty_database
from tests.waiting import until

from ..results.samples import curve
from .stored import Stored

pytestmark = mlflow_warnings.IGNORED
WRITES = frozenset(
    {
        "create_experiment", "restore_experiment", "set_experiment_tag", "create_run", "log_batch", "set_terminated",
        "log_artifacts", "log_inputs", "delete_run", "delete_experiment",
    }
)  # fmt: skip


def trials(label: str, count: int, rounds: int = 20, first: int = 0) -> list[TrialCurve]:
    at = np.arange(rounds + 1)
    same: dict[str, Any] = {"label": label, "train_loss": 1 / (1 + at), "client_lr": 0.1 + 0 * at}
    numbers = range(first, first + count)
    return [curve(0.9 * (1 - np.exp(-at / (2 + number))), number=number, **same) for number in numbers]


def ended(store: Store, name: str = "digits") -> Stored:
    """A study of one label that has ended."""
    study = Stored(store, ["fedavg"], 20, name)
    study.add(trials("fedavg", 2))
    study.succeed()
    return study


def shown(client: Any) -> dict[str, Any]:
    """All that people can see, without MLflow's own ids and times of writing."""
    found: dict[str, Any] = {}
    for experiment in client.search_experiments(filter_string="name != 'Default'"):
        runs, listed = {}, client.search_runs([experiment.experiment_id])
        for run in listed:
            history = {
                name: [(row.step, row.value) for row in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            key = run.data.tags["driftline.key"]
            assert key not in runs, "two runs show the same"
            files = [file.path for file in client.list_artifacts(run.info.run_id)]
            tags = {
                name: without_run_ids(value, listed)
                for name, value in run.data.tags.items()
                if not name.startswith("mlflow.user")
            }
            info = (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time)
            datasets = [(used.dataset.name, used.dataset.digest, used.dataset.profile) for used in inputs(run)]
            runs[key] = (info, run.data.params, tags, history, files, datasets)
        tags = {
            name: without_run_ids(value, listed) for name, value in experiment.tags.items() if "databricks" not in name
        }
        found[experiment.name] = (tags, runs)
    return found


def inputs(run: Any) -> list[Any]:
    return list(run.inputs.dataset_inputs) if run.inputs else []


def without_run_ids(text: str, runs: Any) -> str:
    """The text with keys in place of MLflow's ids of runs, which differ between databases."""
    for run in runs:
        text = text.replace(run.info.run_id, run.data.tags["driftline.key"])
    return text


def recorder(store: Store, study: Stored, uri: str, folder: Path, **options: Any) -> Recorder:
    return Recorder(store, study.id, uri, str(folder / "mlartifacts"), **options)


def finished_study(store: Store) -> Stored:
    study = Stored(store, ["fedavg", "fedprox"], 20)
    for label in ("fedavg", "fedprox"):
        study.add(trials(label, 2))
    study.add([curve([0.1, 0.2, float("nan")], label="fedavg", number=2, state="DIVERGED")])
    study.add([curve([0.1, 0.2], label="fedprox", number=2, state="FAILED")])
    study.succeed()
    return study


class Recorded(NamedTuple):
    """A finished study, in MLflow with all its files."""

    store: Store
    study: Stored
    uri: str
    client: Any


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Recorded:
    """What several tests look at."""
    folder = tmp_path_factory.mktemp("recorded")
    uri = f"sqlite:///{shutil.copy(migrated, folder / 'mlflow.db')}"
    store = Store(empty_database(folder / "driftline.db"))
    study = finished_study(store)
    writer = recorder(store, study, uri, folder)
    assert writer.finish()
    return Recorded(store, study, uri, connect(uri))


def test_a_finished_study(recorded: Recorded) -> None:
    store, study, uri, client = recorded
    everything = shown(client)
    name = f"digits {study.id[-6:]}"
    assert set(everything) == {name, f"{name} trials"}

    labels = everything[name][1]
    by_name = {run[0][0]: run for run in labels.values()}
    assert set(by_name) == {"digits", "fedavg", "fedprox"}
    assert all(run[0][1] == "FINISHED" for run in labels.values())
    assert by_name["digits"][4] == ["frontier.html", "frontier.json", "frontier.png", "frontier.svg", "trials.csv"]
    assert "fedavg: recommendations, search" in by_name["digits"][2]["mlflow.note.content"]
    frontier = by_name["fedavg"][3]["frontier"]
    (parent,) = client.search_runs(["1"], filter_string="tags.`driftline.kind` = 'study'")
    document = json.loads(Path(client.download_artifacts(parent.info.run_id, "frontier.json")).read_text())
    assert frontier == [(row["cost"], row["quality"]) for row in document["methods"]["fedavg"]["frontier"]]
    assert by_name["fedavg"][3]["diverged"] == [(0, 1.0)]
    for kind in ("low", "high"):
        band = [(row["cost"], row[kind]) for row in document["methods"]["fedavg"]["frontier"]]
        assert by_name["fedavg"][3][f"frontier_{kind}"] == band

    runs = everything[f"{name} trials"][1]
    assert len(runs) == 6
    info, params, tags, history, *_ = runs[f"{study.id}.fedavg.s00001"]
    assert info[:2] == ("fedavg.s00001", "FINISHED")
    assert params == {"client_lr": "0.2", "label": "fedavg", "seed": "0"}
    assert tags["driftline.state"] == "COMPLETE"
    assert [step for step, _ in history["test_accuracy"]] == list(range(21))
    assert history["client_lr"] == [(0, 0.1)]  # it never changes
    assert history["client_gradients"] == [(20, 200.0)]  # a counter: its total
    assert runs[f"{study.id}.fedavg.s00002"][2]["driftline.state"] == "DIVERGED"
    failed = runs[f"{study.id}.fedprox.s00002"]
    assert (failed[0][1], failed[2]["driftline.error"]) == ("FAILED", "out of memory")

    assert store.studies.get(study.id).mlflow_url is None  # no server shows the file
    Recorder(store, study.id, uri, public_url="https://ml.example.org").sync()  # now one does
    found = store.studies.get(study.id).mlflow_url or ""
    assert found.startswith("https://ml.example.org/#/experiments/1/runs?compareRunsMode=CHART")


def test_label_runs_say_what_to_run(recorded: Recorded) -> None:
    study, client = recorded.study, recorded.client
    name = f"digits {study.id[-6:]}"
    ((_, params, tags, _, _, datasets),) = [run for run in shown(client)[name][1].values() if run[0][0] == "fedavg"]
    entry = {"label": "fedavg", "method": "fedavg", "server": "sgd", "schedule": "constant"}
    to_run = {name: params[name] for name in ("stop_at_round", "up to 20 rounds")}
    assert params == {**entry, "client_lr": "0.1", "configuration": "0", **to_run}
    assert params["up to 20 rounds"].startswith("test_accuracy 0.8999: ")
    assert params["up to 20 rounds"].endswith(f"stop at round {params['stop_at_round']}, client_lr 0.1")
    assert (tags["driftline.study"], tags["driftline.method"]) == (study.id, "fedavg")
    ((dataset, digest, profile),) = datasets
    assert (dataset, len(digest), json.loads(profile)) == ("digits", 16, {"name": "digits", "clients": 50})


def test_trials_are_sorted_by_quality_cost_to_a_target_frontier_and_divergence(recorded: Recorded) -> None:
    study, client = recorded.study, recorded.client
    experiment = client.get_experiment_by_name(f"digits {study.id[-6:]} trials").experiment_id

    def names(condition: str, order: str = "tags.`driftline.key`") -> list[str]:
        return [run.info.run_name for run in client.search_runs([experiment], condition, order_by=[order])]

    by_quality = ["fedavg.s00000", "fedavg.s00001"]
    fedavg = "tags.`driftline.label` = 'fedavg'"
    assert names(f"{fedavg} and metrics.final_test_accuracy > 0", "metrics.final_test_accuracy DESC") == by_quality
    assert names(f"{fedavg} and metrics.`rounds_to_0.5` > 0", "metrics.`rounds_to_0.5` ASC") == by_quality
    assert names("metrics.on_frontier > 0") == ["fedavg.s00000", "fedprox.s00000"]
    assert names(f"{fedavg} and metrics.on_frontier = 0") == ["fedavg.s00001", "fedavg.s00002"]
    assert names("metrics.diverged > 0") == ["fedavg.s00002"]
    assert len(names(f"tags.`driftline.study` = '{study.id}' and tags.`driftline.method` = 'fedprox'")) == 3


def test_marks_of_the_frontier_follow_it_and_only_changes_are_written(client: Any) -> None:
    counted = Cut(client)
    runs = Tracking(counted, "trials", None, {})
    ids = {key: runs.run(key, key, {}, 0) for key in "abc"}
    for step, keys in enumerate(("ab", "ab", "bc", "ab"), 1):
        counted.writes.clear()
        runs.mark("on_frontier", keys, step=step, timestamp_ms=5)
        assert len(counted.writes) == (2, 0, 2, 2)[step - 1]
        assert {key for key in ids if client.get_run(ids[key]).data.metrics.get("on_frontier", 0) > 0} == set(keys)


@pytest.mark.usefixtures("one_file")
def test_repeating_changes_nothing(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = finished_study(store)
    writer = recorder(store, study, uri, tmp_path)
    assert writer.sync()
    before = shown(client)
    assert not writer.sync()
    assert recorder(store, study, uri, tmp_path).finish()
    assert shown(client) == before
    store.recorder_state.clear(study.id, ())  # what has been written is forgotten
    assert recorder(store, study, uri, tmp_path).sync()  # it writes all of it again
    assert shown(client) == before


def prepared(tmp_path: Path, migrated: Path) -> tuple[Callable[[str], tuple[Store, str]], Stored]:
    """A finished study of two trials, and what copies its store and an empty MLflow into a folder, by name."""
    store = Store(tmp_path / "prepared.db")
    study = Stored(store, ["fedavg"], 5)
    study.add(trials("fedavg", 2, rounds=5))
    study.succeed()
    store.close()

    def fresh(name: str) -> tuple[Store, str]:
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(tmp_path / "prepared.db", folder / "driftline.db")
        shutil.copy(migrated, folder / "mlflow.db")
        return Store(folder / "driftline.db"), f"sqlite:///{folder / 'mlflow.db'}"

    return fresh, study


class CreatesTwice:
    """An MLflow client that repeats a request to create a run, although the server has created the run already.

    The forgotten run has the smaller id, so that nothing but its contents tells the two apart.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_run(self, *args: Any, **kwargs: Any) -> Any:
        while True:
            one, other = (self._client.create_run(*args, **kwargs) for _ in range(2))
            if one.info.run_id < other.info.run_id:
                return other
            for run in (one, other):
                self._client.delete_run(run.info.run_id)


@pytest.mark.usefixtures("one_file")
def test_of_runs_that_a_slow_server_created_twice_one_is_kept(
    store: Store, uri: str, client: Any, tmp_path: Path
) -> None:
    study = finished_study(store)
    writer = recorder(store, study, uri, tmp_path, client=lambda where: CreatesTwice(connect(where)))
    assert writer.finish()
    both = shown(client)
    labels, runs = (both[f"digits {study.id[-6:]}{kind}"][1] for kind in ("", " trials"))
    assert len(runs) == 6
    assert len(labels) == 3
    assert all(history for _, _, _, history, *_ in runs.values())
    (whole,) = (run for key, run in labels.items() if key.startswith("study"))
    assert "frontier.json" in whole[4]
    assert not recorder(store, study, uri, tmp_path).sync()


class Crash(BaseException):
    """The process is gone: no handler runs."""


class Cut:
    """An MLflow client on which something else happens before a write, or that dies right after one."""

    def __init__(self, client: Any, at: int = 0, *, dies: bool = False) -> None:
        self._client, self._at, self._dies = client, at, dies
        self.meanwhile: Callable[[], object] = lambda: None
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return partial(self._write, name, method) if name in WRITES else method

    def _write(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.writes.append(name)
        here = len(self.writes) == self._at
        if here:
            self.meanwhile()
        result = method(*args, **kwargs)
        if here and self._dies:
            raise Crash
        return result


@pytest.mark.parametrize("ended", [False, True], ids=["the other has the lease", "the other has ended"])
def test_a_recorder_that_stalls_while_another_writes_all_leaves_nothing_twice(
    ended: bool, tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is lost before it creates or ends a run; the write comes after all of the other's.

    Where the other one has ended, the lease can be had again at once.
    """
    monkeypatch.setattr(study_recorder, "FILES", ("frontier.json", "trials.csv"))
    monkeypatch.setattr(bulk_runs, "knows", lambda uri: False)  # as with a server
    fresh, study = prepared(tmp_path, migrated)
    store, uri = fresh("whole")
    whole = Cut(connect(uri))
    assert recorder(store, study, uri, tmp_path / "whole", client=lambda _: whole).sync()
    expected = shown(connect(uri))
    store.close()
    places = [at for at, name in enumerate(whole.writes, 1) if name in ("create_run", "set_terminated")]
    assert len(places) == 8
    for at in (places[0], *places[4:6], places[7]) if ended else (places[0], *places[3:]):  # trial, study, label
        store, uri = fresh(f"at{at}")
        other = recorder(store, study, uri, tmp_path / f"at{at}")
        other._lease.owner = "another-host/7"
        stalled = Cut(connect(uri), at)
        slow = recorder(store, study, uri, tmp_path / f"at{at}", client=lambda _, one=stalled: one)
        stalled.meanwhile = partial(overtaken, store, slow, other, ended=ended)
        slow.sync()
        assert len(stalled.writes) >= at
        other._lease.release()
        slow.sync()
        assert not slow.doubts
        assert shown(connect(uri)) == expected, (at, whole.writes[at - 1])
        store.close()


def test_a_slow_answer_costs_no_lease(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two recorders for which everything takes longer than a lease would write the study in turn for ever."""
    monkeypatch.setattr(study_recorder, "FILES", ("frontier.json", "trials.csv"))
    monkeypatch.setattr(study_lease, "LEASE_S", 2.0)
    fresh, study = prepared(tmp_path, migrated)
    store, uri = fresh("slow")
    stalled = Cut(connect(uri), at=3)
    slow = recorder(store, study, uri, tmp_path / "slow", client=lambda _: stalled)
    taken: list[bool] = []

    def meanwhile() -> None:
        time.sleep(3)
        taken.append(StudyLease(store, study.id, "another-host/7").take())

    stalled.meanwhile = meanwhile
    assert slow.sync()
    assert taken == [False]
    assert not slow.doubts
    store.close()


def overtaken(store: Store, slow: Recorder, other: Recorder, *, ended: bool) -> None:
    """The lease of one recorder ends, and another one writes everything, and perhaps ends."""
    slow._lease.release()
    slow._lease._renewed = float("-inf")
    assert other.sync()
    if ended:
        other._lease.release()


def test_a_crash_at_any_write_leaves_nothing_twice(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_recorder, "FILES", ("frontier.json", "trials.csv"))  # pictures take their time
    fresh, study = prepared(tmp_path, migrated)
    store, uri = fresh("whole")
    counter = Cut(connect(uri))
    assert recorder(store, study, uri, tmp_path / "whole", client=lambda _: counter).sync()
    expected = shown(connect(uri))
    store.close()
    assert len(counter.writes) > 12

    for at in range(1, len(counter.writes) + 1):  # before write n is after write n - 1
        folder = f"after{at}"
        store, uri = fresh(folder)
        dying = Cut(connect(uri), at, dies=True)
        with pytest.raises(Crash):
            recorder(store, study, uri, tmp_path / folder, client=lambda _, dying=dying: dying).sync()
        assert recorder(store, study, uri, tmp_path / folder).finish()
        assert shown(connect(uri)) == expected, folder
        store.close()
        shutil.rmtree(tmp_path / folder)


@pytest.mark.usefixtures("one_file")
def test_mlflow_away_then_back(
    store: Store,
    uri: str,
    client: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(study_recorder, "EVERY_S", 0.01)
    monkeypatch.setattr(study_recorder, "LONGEST_WAIT_S", 0.05)
    study = finished_study(store)
    away = True

    def reach(where: str) -> Any:
        if away:
            raise ConnectionError("connection refused")
        return connect(where)

    writer = recorder(store, study, uri, tmp_path, client=reach)
    assert not writer.finish(timeout_s=0.6)
    assert "is not all in MLflow" in caplog.text
    stop = threading.Event()
    thread = threading.Thread(target=writer.run, args=(stop,))
    thread.start()
    until(lambda: "is unreachable, next attempt in" in caplog.text)
    assert thread.is_alive()
    away = False
    thread.join(60)
    assert not thread.is_alive()  # all is shown and the study has finished: nothing is left to do
    assert len(shown(client)[f"digits {study.id[-6:]} trials"][1]) == 6


def test_labels_follow_a_running_study(
    store: Store, uri: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_runs, "LIVE_AFTER_S", 0.0)
    monkeypatch.setattr(study_recorder, "FILES", ("frontier.json",))
    study = Stored(store, ["fedavg"], 20)
    writer = recorder(store, study, uri, tmp_path)
    name = f"digits {study.id[-6:]}"

    writer.sync()
    record = store.studies.get(study.id)
    assert set(shown(client)[name][1]) == {f"study/{record.fingerprint}", f"label/fedavg/{record.version}/RUNNING"}

    slow = trials("fedavg", 1)
    (running,) = study.add(slow, until=8)
    writer.sync()
    history = shown(client)[f"{name} trials"][1][running][3]["test_accuracy"]
    assert [step for step, _ in history] == list(range(9))

    last = ""
    for number in range(1, 6):
        study.add(trials("fedavg", 1, first=number))
        writer.sync()
        ((key, run),) = [item for item in shown(client)[name][1].items() if item[0].startswith("label/")]
        assert run[0][1] == "RUNNING"
        assert (key != last) == (number in (1, 2, 4)), "a label gets a new run when the finished trials have doubled"
        last = key

    study.finish([running], slow)
    study.succeed()
    assert writer.finish()
    ((_, run),) = [item for item in shown(client)[name][1].items() if item[0].startswith("label/")]
    assert run[0][1] == "FINISHED"
    assert run[3]["area"][0][1] > 0


@pytest.mark.usefixtures("one_file")
def test_an_extended_study_is_shown_with_its_new_budget(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = finished_study(store)
    assert recorder(store, study, uri, tmp_path).finish()
    budget = {**store.studies.get(study.id).spec["budget"], "trials_per_method": 9}
    store.studies.extend(study.id, budget, "e" * 64, was="f" * 64)
    writer = recorder(store, study, uri, tmp_path)
    assert writer.finish()
    ((key, run),) = [
        item for item in shown(client)[f"digits {study.id[-6:]}"][1].items() if item[0].startswith("study")
    ]
    assert key == "study/" + "e" * 64
    assert run[1]["trials_per_method"] == "9"
    assert run[0][1] == "RUNNING"
    assert "frontier.json" in run[4]


@pytest.mark.usefixtures("one_file")
def test_a_retried_trial_is_shown_as_it_ends_at_last(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = finished_study(store)
    failed = store.trials.find(study.id, state="FAILED")[0].id
    writer = recorder(store, study, uri, tmp_path)
    assert writer.finish()
    noted = store.recorder_state.read(study.id, "trial")
    store.retries.request(study.id)
    store.recorder_state.write(study.id, *noted)  # a recorder that was at work when the trial was retried
    study.attempt = store.leases.acquire(study.id, "h/2").attempt
    store.trials.start_pack(study.id, study.attempt, "again", [failed])
    whole = curve([0.1, 0.2, 0.3, 0.4], label="fedprox", number=2)
    columns = {name: [float(value) for value in values] for name, values in whole.columns.items()}
    columns["round"] = list(range(4))
    store.curves.report(
        study.id, Report(attempt=study.attempt, pack="again", reports={failed: encode(columns)}, rounds_done=3)
    )
    study.finish([failed], [whole])
    study.succeed()
    assert writer.finish()
    (found,) = (runs for name, (_, runs) in shown(client).items() if name.endswith(" trials"))
    info, _, tags, history, *_ = found[failed]
    assert (info[1], tags["driftline.state"], tags["driftline.error"]) == ("FINISHED", "COMPLETE", "")
    assert [step for step, _ in history["test_accuracy"]][:4] == [0, 1, 2, 3]
    assert history["bytes_up"] == [(3, 1200.0)]  # none of the attempt that failed
    assert "driftline.error" not in found[store.trials.find(study.id, state="COMPLETE")[0].id][2]


@pytest.mark.usefixtures("one_file")
def test_only_one_recorder_at_a_time(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = finished_study(store)
    assert store.locks.take(f"recorder/{study.id}", "another-host/7", 3600)
    writer = recorder(store, study, uri, tmp_path)
    assert not writer.sync()
    assert shown(client) == {}
    store.locks.release(f"recorder/{study.id}", "another-host/7")
    assert writer.sync()
