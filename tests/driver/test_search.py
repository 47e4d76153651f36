"""The search without Ray: a real store, real packs, and a loop that stands in for Tune."""

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import InvalidSpec, StaleDriver
from driftline.results.confirmation import to_confirm
from driftline.results.curves import TrialCurve
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from driftline.wire.curve_codec import decode
from driftline.wire.records import TrialRecord
from service.api.computed_results import computed_frontier
from service.driver import checkpoints
from service.driver.ray.worker import Worker, columns
from service.driver.search.search import Search
from service.driver.search.study_plan import data_seed
from service.samplers.build import build
from service.samplers.sampler import Sampler
from service.store.curve_segments import join
from tests.driver.store_client import StoreClient, quadratic
from trainers import Pack, Plan, parse

NO_CLOCK = {"wall_seconds"}
"""Columns that no two runs share."""


class OneRound(Worker):
    """A worker whose steps are one round long."""

    def train_for(self, seconds: float) -> list[dict[str, Any]]:
        return self.pack.advance(max_rounds=1)


class Bench:
    """A search and its workers, all in this process."""

    def __init__(
        self,
        client: StoreClient,
        study_id: str,
        study: Study,
        folder: Path,
        kind: type[Worker] = Worker,
        build_sampler: Callable[..., Sampler] = build,
        slots: int = 2,
        **options: Any,
    ) -> None:
        self.kind = kind
        self.attempt = client.acquire(study_id, "bench/0").attempt
        self.search = Search(
            client,
            study_id,
            study,
            self.attempt,
            folder=str(folder),
            slots=lambda: slots,
            build_sampler=build_sampler,
            options={"chunk_seconds": 60.0, **options},
            trials=str(folder / "trials"),
        )
        self.search.load()
        self.workers: dict[str, Worker] = {}

    def start(self) -> str | None:
        job = self.search.next_job()
        if job is None:
            return None
        worker = self.kind.__new__(self.kind)  # without Tune's folders
        worker.take(job.config())
        self.workers[job.pack] = worker
        return job.pack

    def begin(self) -> str:
        """Starts a pack that there must be."""
        pack = self.start()
        assert pack is not None
        return pack

    def step(self, pack: str) -> dict[str, Any]:
        result = self.workers[pack].step()
        report: dict[str, Any] = json.loads(result["report"])
        self.search.report(report)
        if (until := self.search.further.pop(pack, None)) is not None:
            self.workers[pack].go_on(until)
        if result["done"]:
            del self.workers[pack]
        return report

    def kill(self, pack: str) -> None:
        del self.workers[pack]
        self.search.lost(pack)

    def request_stop(self) -> None:
        for worker in self.workers.values():
            worker.request_stop()

    def run(self) -> None:
        for _ in range(1000):
            while self.start():
                pass
            if self.search.finished:
                return
            self.step(sorted(self.workers)[0])
        raise AssertionError("no end")


def alone(study: Study, trial: TrialRecord) -> dict[str, list[Any]]:
    """The curve of a trial that is trained by itself in one go, under the plan of its pack."""
    document = trial_document(study, trial.label, [trial.hyperparameters], trial.seed, phase=trial.phase)
    return columns(Pack.from_spec(parse(document), plan=Plan.from_json({**trial.plan, "width": 1})).advance(), 1)[0]


def begun(client: StoreClient, study: Study, folder: Path, *given: Any, **options: Any) -> tuple[str, Bench]:
    """A study that was just submitted, and its first driver."""
    study_id = client.submit(study)
    return study_id, Bench(client, study_id, study, folder, *given, **options)


def ran(client: StoreClient, study: Study, folder: Path, **options: Any) -> str:
    """The id of a study that has run to its end."""
    study_id, bench = begun(client, study, folder, **options)
    bench.run()
    assert bench.search.outcome() == ("SUCCEEDED", "")
    return study_id


def reported(report: dict[str, Any]) -> list[Any]:
    """The rounds that a worker reported for its pack's first member."""
    return join(decode(b64decode(block)) for block in report["reports"][0])["round"]


def curves(client: StoreClient, study_id: str) -> dict[str, Any]:
    return {
        trial: {name: column for name, column in columns.items() if name not in NO_CLOCK}
        for trial, columns in client.store.curves.columns(study_id).items()
    }


def facts(client: StoreClient, study_id: str) -> list[Any]:
    """What no death and no retry may change: settings, results, curves."""
    stored = curves(client, study_id)
    return [
        (trial.id.partition(".")[2], trial.state, trial.hyperparameters, trial.values, stored[trial.id])
        for trial in client.store.trials.find(study_id)
    ]


def test_a_study_runs_to_its_end(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic()
    study_id, bench = begun(client, study, tmp_path)
    wanted = []
    while not bench.search.finished:
        while bench.start():
            pass
        left = 20 - len(client.finished)
        training = sum(len(pack) for pack in bench.search.table.running().values())
        wanted.append(bench.search.left())
        assert wanted[-1] == (0 if training == left else left), "no place is wanted for what is being trained"
        if bench.workers:
            bench.step(sorted(bench.workers)[0])
    assert (wanted[0], wanted[-2]) == (20, 0), "the last packs have their places"
    assert bench.search.outcome() == ("SUCCEEDED", "")
    trials, stored = client.store.trials.find(study_id), curves(client, study_id)
    assert len(trials) == 2 * (6 + 2 * 2)
    assert all(trial.state in ("COMPLETE", "DIVERGED") for trial in trials)
    assert len({result.trial for result in client.finished}) == len(client.finished) == 20
    for label in study.labels:
        own = [trial for trial in trials if trial.label == label]
        searched = [TrialCurve.from_record(trial, stored[trial.id]) for trial in own if trial.phase == "search"]
        confirmed = [trial for trial in own if trial.phase == "confirmation"]
        assert sorted(trial.seed for trial in confirmed) == [1, 1, 2, 2]
        assert {trial.configuration for trial in confirmed} == set(to_confirm(searched, "loss", "rounds", 2))
    complete = [trial for trial in trials if trial.state == "COMPLETE"]
    assert all(stored[trial.id]["round"] == list(range(31)) for trial in complete)
    assert not list(tmp_path.glob(f"{study_id}/*.ckpt"))
    assert client.store.leases.release(study_id, bench.attempt, "SUCCEEDED") == "SUCCEEDED"


def test_searches_of_a_label_share_its_budget_and_have_seeds_of_their_own(client: StoreClient, tmp_path: Path) -> None:
    budget = {"trials_per_method": 8, "rounds": 30, "seeds": 2, "confirm": 4, "searches": 2}
    study = quadratic(budget=budget)
    study_id = ran(client, study, tmp_path)
    for label in study.labels:
        for search, seed in enumerate((0, data_seed(0, 1))):
            trials = client.store.trials.find(study_id, label=label)
            own = [(trial.phase, trial.seed) for trial in trials if trial.configuration % 2 == search]
            fresh = [("confirmation", seed + 1), ("confirmation", seed + 2)]
            assert sorted(own) == sorted([("search", seed)] * 4 + fresh * 2)
        assert computed_frontier(client.store, study_id)["methods"][label]["reported"]["searches"] == 2


def test_seeds_that_share_a_pack_have_the_curves_that_they_have_alone(client: StoreClient, tmp_path: Path) -> None:
    study = Study.from_json(
        {
            "name": "seeds",
            "task": {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}},
            "clients_per_round": 3,
            "batch_size": 8,
            "methods": [
                {"name": "fedavg", "space": {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 1.0, "local_steps": 2}}
            ],
            "objective": {"quality": "test_loss"},
            "budget": {"trials_per_method": 8, "rounds": 3, "searches": 4, "confirm": 4, "seeds": 4},
            "resources": {"gpu": 0},
            "sampler": "random",
        }
    )
    study_id = ran(client, study, tmp_path)
    stored = curves(client, study_id)
    confirmed = [record for record in client.trials(study_id) if record.phase == "confirmation"]
    assert len({record.seed for record in confirmed}) == len(confirmed) == 16
    for record in confirmed:
        assert record.plan is not None
        assert (record.plan["width"], record.plan["oracle"]) == (2, "stacked")
        document = trial_document(study, record.label, [record.hyperparameters], record.seed, phase=record.phase)
        (alone,) = columns(Pack.from_spec(parse(document)).advance(), 1)
        assert stored[record.id]["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-4)
        assert stored[record.id]["examples"] == alone["examples"]


def test_the_search_measures_a_sample_of_the_held_out_clients_and_confirmation_all(
    client: StoreClient, tmp_path: Path
) -> None:
    study = Study.from_json(
        {
            "name": "noisy",
            "task": {"name": "mnist_by_writer", "writers": 5, "test_writers": 6},
            "methods": [{"name": "fedsgd", "space": {"server_lr": {"float": [0.1, 1]}}}],
            "evaluation": {"clients": 2},
            "budget": {"trials_per_method": 2, "rounds": 3, "seeds": 1, "confirm": 1},
            "resources": {"gpu": 0},
            "sampler": "random",
        }
    )
    study_id = ran(client, study, tmp_path)
    stored, records = curves(client, study_id), client.trials(study_id)
    assert sorted(record.phase for record in records) == ["confirmation", "search", "search"]
    for record in records:
        document = trial_document(study, record.label, [record.hyperparameters], record.seed, phase=record.phase)
        assert ("evaluation" in document) == (record.phase == "search")
        (alone,) = columns(Pack.from_spec(parse(document)).advance(), 1)
        assert stored[record.id]["test_accuracy"] == pytest.approx(alone["test_accuracy"], abs=1e-6)
        document["evaluation"] = None if record.phase == "search" else {"clients": 2}
        (other,) = columns(Pack.from_spec(parse(document)).advance(), 1)
        assert stored[record.id]["test_accuracy"] != pytest.approx(other["test_accuracy"], abs=1e-3)


def test_configurations_of_unlike_sizes_train_in_packs_of_their_own(client: StoreClient, tmp_path: Path) -> None:
    space = {"server_lr": 0.5, "clients_per_round": {"choice": [1, 2]}, "batch_size": {"choice": [None, 20]}}
    study = Study.from_json(
        {
            "name": "sizes",
            "task": {"name": "digits", "clients": 3},
            "methods": [{"name": "fedsgd", "space": space}],
            "budget": {"trials_per_method": 6, "rounds": 3, "seeds": 1, "confirm": 2},
            "resources": {"gpu": 0, "packs": 6},
            "sampler": "quasi_random",
        }
    )
    study_id = ran(client, study, tmp_path)
    stored, records = curves(client, study_id), client.trials(study_id)
    sizes = {(one.hyperparameters["clients_per_round"], one.hyperparameters["batch_size"]) for one in records}
    assert len(records) == 8
    assert len(sizes) == 4
    for record in records:
        assert record.state == "COMPLETE"
        assert record.plan["clients_per_round"] == record.hyperparameters["clients_per_round"]
        document = trial_document(study, record.label, [record.hyperparameters], record.seed)
        (alone,) = columns(Pack.from_spec(parse(document)).advance(), 1)
        assert stored[record.id]["client_gradients"] == alone["client_gradients"]
        assert stored[record.id]["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-5)


def test_values_are_those_of_the_stored_curve(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 2, "rounds": 10, "seeds": 0})
    study_id = ran(client, study, tmp_path)
    trial = next(trial for trial in client.store.trials.find(study_id) if trial.values)
    loss = client.store.curves.columns(study_id, [trial.id])[trial.id]["loss"]
    assert trial.values.quality == pytest.approx(-loss[-1])  # a window of one round


def test_stopped_and_resumed_packs_give_the_uninterrupted_curves(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 4, "rounds": 400, "seeds": 0}, methods=[one()])
    whole = ran(client, study, tmp_path / "whole")
    broken, first = begun(client, study, tmp_path / "broken", OneRound)
    packs = [first.start()]
    assert first.start() is None, "the first pack decides how the others are computed"
    first.step(str(packs[0]))
    assert set(first.search.table.curves[f"{broken}.only.s00000"]) == {"round", "diverged", "loss"}, "what results need"
    packs.append(first.start())
    for _ in range(19):
        first.step(str(packs[0]))
    first.request_stop()
    stopped = [first.step(str(pack)) for pack in packs]
    assert [report["stopped"] for report in stopped] == [True, True]
    assert stopped[0]["rounds_done"] == 20
    assert stopped[0]["checkpoint"].endswith(".00000020.ckpt")
    assert stopped[1]["checkpoint"] is None  # it had not begun
    assert {trial.state for trial in client.store.trials.find(broken)} == {"WAITING"}
    client.store.leases.release(broken, first.attempt, "PAUSED")
    second = Bench(client, broken, study, tmp_path / "broken")
    pack = second.begin()
    assert reported(second.step(pack))[0] == 21
    second.run()
    assert list(curves(client, broken).values()) == list(curves(client, whole).values())
    assert len(client.finished) == 8


def three(**changes: Any) -> Study:
    """A study of one pack of three trials that do not diverge."""
    return quadratic(budget={"trials_per_method": 3, "rounds": 50, "seeds": 0}, methods=[one()], **changes)


def live(bench: Bench, steps: int) -> list[int]:
    """Starts a pack, steps it, and kills its worker; gives the rounds that it told of."""
    pack = bench.begin()
    rounds = [bench.step(pack)["rounds_done"] for _ in range(steps)]
    bench.kill(pack)
    return rounds


def deaths(client: StoreClient, study_id: str) -> list[tuple[str, int, int | None]]:
    return [(trial.state, trial.deaths, trial.death_round) for trial in client.store.trials.find(study_id)]


def test_the_third_death_at_one_checkpoint_fails_the_pack(client: StoreClient, tmp_path: Path) -> None:
    study_id, bench = begun(client, three(), tmp_path, OneRound, checkpoint_seconds=0.0)
    assert [live(bench, steps) for steps in (2, 4, 0)] == [[1, 2], [2, 3, 4, 5], []]
    assert deaths(client, study_id) == [("WAITING", 2, 4)] * 3
    assert live(bench, 1) == [5]
    assert deaths(client, study_id) == [("FAILED", 3, 4)] * 3
    error = "given up after 3 attempts without a checkpoint after round 4: its worker died"
    assert {trial.error for trial in client.store.trials.find(study_id)} == {error}
    bench.run()
    assert bench.search.outcome() == ("FAILED", f"every trial has failed; the first: {error}")


def test_a_new_driver_goes_on_counting_deaths(client: StoreClient, tmp_path: Path) -> None:
    study = three()
    study_id = client.submit(study)

    def bench() -> Bench:
        return Bench(client, study_id, study, tmp_path, OneRound, checkpoint_seconds=0.0)

    for _ in range(2):
        assert live(bench(), 1) == [1]
    assert deaths(client, study_id) == [("WAITING", 2, 0)] * 3
    further = bench()
    pack = further.begin()
    assert [further.step(pack)["rounds_done"] for _ in range(3)] == [1, 2, 3]
    further.request_stop()  # no death
    assert further.step(pack)["stopped"]
    assert deaths(client, study_id) == [("WAITING", 2, 0)] * 3
    assert live(bench(), 0) == []  # but it had come further before
    assert deaths(client, study_id) == [("WAITING", 1, 3)] * 3
    for _ in range(2):
        live(bench(), 1)
    assert deaths(client, study_id) == [("FAILED", 3, 3)] * 3


def test_progress_of_which_only_the_checkpoint_is_left_counts(client: StoreClient, tmp_path: Path) -> None:
    """Each worker dies in the step at whose beginning it has written a checkpoint, before it tells of it."""
    study_id, bench = begun(client, three(), tmp_path, OneRound, checkpoint_seconds=0.0)
    for life in range(1, 8):
        pack = bench.begin()
        assert bench.step(pack)["rounds_done"] == life
        bench.workers[pack].step()
        bench.kill(pack)
    assert deaths(client, study_id) == [("WAITING", 1, 6)] * 3
    bench.run()
    assert bench.search.outcome() == ("SUCCEEDED", "")


def test_coming_as_far_again_after_checkpoints_were_lost_is_no_progress(client: StoreClient, tmp_path: Path) -> None:
    study_id, bench = begun(client, three(), tmp_path, OneRound, checkpoint_seconds=0.0)
    for steps in (6, 4, 6):
        assert live(bench, steps)[0] == 1
        for file in tmp_path.glob(f"{study_id}/*.ckpt"):
            file.unlink()
    assert deaths(client, study_id) == [("FAILED", 3, 5)] * 3


def test_checkpoints_that_were_never_reported_are_found_again(client: StoreClient, tmp_path: Path) -> None:
    """A worker dies, with its driver, before it has told of its checkpoints; and so does its successor."""
    study = three()
    study_id = client.submit(study)
    begun = []
    for _ in range(3):
        bench = Bench(client, study_id, study, tmp_path, OneRound, checkpoint_seconds=0.0)
        pack = bench.begin()
        for step in range(4):
            report = json.loads(bench.workers[pack].step()["report"])
            bench.search.report({**report, "checkpoint": None})
            begun += reported(report)[-1:] if step == 0 else []
    assert begun == [1, 4, 7]
    assert {trial.checkpoint for trial in client.store.trials.find(study_id)} == {None}


def test_a_worker_that_wakes_up_after_it_was_replaced_changes_nothing(client: StoreClient, tmp_path: Path) -> None:
    """The one of a driver that hung, and one that hung under the same driver."""
    study = three()
    study_id, hung = begun(client, study, tmp_path, OneRound, checkpoint_seconds=0.0)
    pack = hung.begin()
    asleep = [hung.workers[pack]]
    for _ in range(5):
        hung.step(pack)
    client.store.leases.lost(study_id, hung.attempt, "it hangs")
    bench = Bench(client, study_id, study, tmp_path, OneRound, checkpoint_seconds=0.0)
    again = bench.begin()
    assert reported(bench.step(again)) == [5]  # from the checkpoint of round 4
    assert bench.step(again)["checkpoint"] is not None
    asleep[0].step()  # the step that it was in, with a checkpoint of round 5
    with pytest.raises(StaleDriver):
        hung.step(pack)
    asleep.append(bench.workers[again])
    bench.search.lost(again, "its worker hung")
    last = bench.begin()
    assert reported(bench.step(last)) == [6]  # from the newer driver's checkpoint of round 5
    assert bench.step(last)["checkpoint"] is not None
    for worker in asleep:
        worker.step()
    newest = next(checkpoints.names(bench.workers[last].job.prefix, 7))
    assert newest.endswith(".2.2.00000006.ckpt")
    bench.run()
    assert len(client.finished) == len({result.trial for result in client.finished}) == 3
    undisturbed = ran(client, study, tmp_path)
    assert list(curves(client, study_id).values()) == list(curves(client, undisturbed).values())


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    client: StoreClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study_id, bench = begun(client, three(), tmp_path, OneRound, checkpoint_seconds=0.0)
    pack = bench.begin()
    for _ in range(5):
        bench.step(pack)
    files = sorted(tmp_path.glob(f"{study_id}/*.ckpt"))
    assert [file.name.split(".")[-2] for file in files] == ["00000003", "00000004"]
    files[1].write_bytes(files[1].read_bytes()[:-7])
    bench.search.lost(pack)
    again = bench.begin()
    assert bench.step(again)["rounds_done"] == 4
    assert "cannot be used" in caplog.text
    for file in tmp_path.glob(f"{study_id}/*.ckpt"):
        file.write_bytes(b"nothing")
    bench.search.lost(again)
    last = bench.begin()
    report = bench.step(last)
    assert report["rounds_done"] == 1
    assert "started again from round 0" in report["remark"]
    bench.run()
    stored = curves(client, study_id)
    assert all(columns["round"] == list(range(51)) for columns in stored.values())


def test_a_metric_that_is_never_reported_ends_the_study(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(objective={"quality": "test_accuracy"})
    bench = Bench(client, client.submit(study), study, tmp_path)
    with pytest.raises(InvalidSpec, match='got "test_accuracy"'):
        bench.run()


def one() -> dict[str, Any]:
    space = {"client_lr": {"float": [1e-3, 1e-2]}, "server_lr": {"float": [1e-3, 1e-2]}, "local_steps": 2}
    return {"label": "only", "name": "fedavg", "space": space}
