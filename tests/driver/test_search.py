"""The search without Ray: a real store, real packs, and a loop that stands in for Tune."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.driver import checkpoints
from service.driver.search import Search
from service.driver.worker import Worker
from service.errors import DriftlineError, InvalidSpec, StaleDriver
from service.schemas.study import Study
from tests.driver.stand_ins import StoreClient, quadratic

NO_CLOCK = {"wall_seconds"}
"""Columns that no two runs share."""


class OneRound(Worker):
    """A worker whose steps are one round long."""

    def train_for(self, seconds: float) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.pack.advance(max_rounds=1)
        return lines


class Bench:
    """A search and its workers, all in this process."""

    def __init__(
        self,
        client: StoreClient,
        study_id: str,
        study: Study,
        folder: Path,
        kind: type[Worker] = Worker,
        **options: Any,
    ) -> None:
        self.client = client
        self.kind = kind
        self.attempt = client.acquire(study_id, "bench/0").attempt
        self.search = Search(
            client,
            study_id,
            study,
            self.attempt,
            folder=str(folder),
            slots=lambda: 2,
            options={"chunk_seconds": 60.0, **options},
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

    def step(self, pack: str) -> dict[str, Any]:
        result = self.workers[pack].step()
        report: dict[str, Any] = json.loads(result["report"])
        self.search.report(report)
        if result["done"]:
            del self.workers[pack]
        return report

    def run(self) -> None:
        for _ in range(1000):
            while self.start():
                pass
            if self.search.finished:
                return
            self.step(sorted(self.workers)[0])
        raise AssertionError("no end")


def curves(client: StoreClient, study_id: str) -> dict[str, Any]:
    return {
        trial: {name: column for name, column in columns.items() if name not in NO_CLOCK}
        for trial, columns in client.store.curves(study_id).items()
    }


def test_a_study_runs_to_its_end(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic()
    study_id = client.submit(study)
    bench = Bench(client, study_id, study, tmp_path)
    bench.run()
    assert bench.search.outcome() == ("SUCCEEDED", "")
    trials = client.store.trials(study_id)
    assert len(trials) == 2 * (6 + 2 * 2)
    assert all(trial.state in ("COMPLETE", "DIVERGED") for trial in trials)
    assert len({result.trial for result in client.finished}) == len(client.finished) == 20
    for label in study.labels:
        front = [trial for trial in trials if trial.label == label and trial.phase == "front"]
        assert sorted(trial.seed for trial in front) == [1, 1, 2, 2]
        best = {trial.number for trial in trials if trial.label == label and trial.phase == "search" and trial.values}
        assert {trial.setting for trial in front} <= best
    stored = curves(client, study_id)
    complete = [trial for trial in trials if trial.state == "COMPLETE"]
    assert all(stored[trial.id]["round"] == list(range(31)) for trial in complete)
    assert not list(tmp_path.glob(f"{study_id}/*.ckpt"))
    assert client.store.release(study_id, bench.attempt, "SUCCEEDED") == "SUCCEEDED"


def test_no_place_is_wanted_when_all_that_is_left_is_being_trained(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic()
    bench = Bench(client, client.submit(study), study, tmp_path)
    trials, wanted = 2 * (6 + 2 * 2), []
    while not bench.search.finished:
        while bench.start():
            pass
        left = trials - len(bench.client.finished)
        training = sum(len(pack) for pack in bench.search.table.running().values())
        wanted.append(bench.search.left())
        assert wanted[-1] == (0 if training == left else left)
        if bench.workers:
            bench.step(sorted(bench.workers)[0])
    assert wanted[0] == trials
    assert wanted[-2] == 0, "the last packs have their places"


def test_values_are_those_of_the_stored_curve(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 2, "rounds": 10, "seeds": 0})
    study_id = client.submit(study)
    Bench(client, study_id, study, tmp_path).run()
    trial = next(trial for trial in client.store.trials(study_id) if trial.values)
    loss = client.store.curves(study_id, [trial.id])[trial.id]["loss"]
    assert trial.values is not None
    assert trial.values.quality == pytest.approx(-loss[-1])  # a window of one round


def test_stopped_and_resumed_packs_give_the_uninterrupted_curves(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 4, "rounds": 400, "seeds": 0}, methods=[one()])
    whole = client.submit(study)
    Bench(client, whole, study, tmp_path / "whole").run()
    broken = client.submit(study)
    first = Bench(client, broken, study, tmp_path / "broken", OneRound)
    packs = [first.start(), first.start()]
    for _ in range(20):
        first.step(str(packs[0]))
    checkpoints.raise_flag(first.search.flag)
    stopped = [first.step(str(pack)) for pack in packs]
    assert [report["stopped"] for report in stopped] == [True, True]
    assert stopped[0]["rounds_done"] == 20
    assert stopped[0]["checkpoint"].endswith(".00000020.ckpt")
    assert stopped[1]["checkpoint"] is None  # it had not begun
    assert {trial.state for trial in client.store.trials(broken)} == {"WAITING"}
    checkpoints.lower_flag(first.search.flag)
    client.store.release(broken, first.attempt, "PAUSED")
    second = Bench(client, broken, study, tmp_path / "broken")
    pack = second.start()
    assert pack is not None
    assert second.step(pack)["reports"][0]["round"][0] == 21
    second.run()
    assert list(curves(client, broken).values()) == list(curves(client, whole).values())
    assert len(client.finished) == 8


def test_a_driver_that_dies_repeats_no_finished_trial(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(sampler="tpe")
    whole = client.submit(study)
    Bench(client, whole, study, tmp_path / "whole").run()
    study_id = client.submit(study)
    first = Bench(client, study_id, study, tmp_path)
    pack = first.start()
    assert pack is not None
    first.step(pack)
    first.start()
    finished = {trial.id for trial in client.store.trials(study_id) if trial.finished}
    assert len(finished) == 3
    client.finished.clear()
    second = Bench(client, study_id, study, tmp_path)
    with pytest.raises(StaleDriver):
        first.search.next_job()
    second.run()
    assert len(client.store.trials(study_id)) == 20
    assert not finished & {result.trial for result in client.finished}
    assert len(client.finished) == 17


def test_a_dead_worker_costs_nothing_and_the_third_death_fails_its_trials(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 3, "rounds": 50, "seeds": 0}, methods=[one()])
    study_id = client.submit(study)
    bench = Bench(client, study_id, study, tmp_path, OneRound, checkpoint_seconds=0.0)
    rounds = []
    for _ in range(3):
        pack = bench.start()
        assert pack is not None
        rounds.append([bench.step(pack)["rounds_done"] for _ in range(4)])
        bench.search.lost(pack)
    assert rounds == [[1, 2, 3, 4], [4, 5, 6, 7], [7, 8, 9, 10]]  # the last step's checkpoint was before its round
    trials = client.store.trials(study_id)
    assert [trial.state for trial in trials] == ["FAILED"] * 3
    assert trials[0].attempt == 3
    assert trials[0].error == "given up after 3 attempts: its worker died"
    bench.run()
    assert bench.search.outcome()[0] == "FAILED"


def test_checkpoints_that_were_never_reported_are_found_again(client: StoreClient, tmp_path: Path) -> None:
    """A worker dies, with its driver, before what it has written is known; and so does its successor."""
    study = quadratic(budget={"trials_per_method": 3, "rounds": 50, "seeds": 0}, methods=[one()])
    study_id = client.submit(study)
    begun = []
    for _ in range(3):
        bench = Bench(client, study_id, study, tmp_path, OneRound, checkpoint_seconds=0.0)
        pack = bench.start()
        assert pack is not None
        first = json.loads(bench.workers[pack].step()["report"])
        begun.append(first["reports"][0]["round"][-1])
        for _ in range(3):
            bench.workers[pack].step()
    assert begun == [1, 4, 7]
    assert {trial.checkpoint for trial in client.store.trials(study_id)} == {None}


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    client: StoreClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = quadratic(budget={"trials_per_method": 3, "rounds": 50, "seeds": 0}, methods=[one()])
    study_id = client.submit(study)
    bench = Bench(client, study_id, study, tmp_path, OneRound, checkpoint_seconds=0.0)
    pack = bench.start()
    assert pack is not None
    for _ in range(5):
        bench.step(pack)
    files = sorted(tmp_path.glob(f"{study_id}/*.ckpt"))
    assert [file.name.split(".")[-2] for file in files] == ["00000003", "00000004"]
    files[1].write_bytes(files[1].read_bytes()[:-7])
    bench.search.lost(pack)
    again = bench.start()
    assert again is not None
    assert bench.step(again)["rounds_done"] == 4
    assert "cannot be used" in caplog.text
    for file in tmp_path.glob(f"{study_id}/*.ckpt"):
        file.write_bytes(b"nothing")
    bench.search.lost(again)
    last = bench.start()
    assert last is not None
    report = bench.step(last)
    assert report["rounds_done"] == 1
    assert "started again from round 0" in report["remark"]
    bench.run()
    stored = curves(client, study_id)
    assert all(columns["round"] == list(range(51)) for columns in stored.values())


def test_an_error_in_the_pack_is_told(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic()
    study_id = client.submit(study)
    bench = Bench(client, study_id, study, tmp_path)

    def spoilt() -> None:
        pack = bench.start()
        assert pack is not None
        worker = bench.workers[pack]
        worker.job = replace(worker.job, document={**worker.job.document, "rounds": 0})
        bench.step(pack)

    for _ in range(8):
        spoilt()
    with pytest.raises(DriftlineError, match="nothing could be trained; the last error: SpecError: rounds must be"):
        spoilt()
    failed = [trial for trial in client.store.trials(study_id) if trial.state == "FAILED"]
    assert len(failed) == 9
    assert "given up after 3 attempts: SpecError" in str(failed[0].error)


def test_a_metric_that_is_never_reported_ends_the_study(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(objective={"quality": "test_accuracy"})
    bench = Bench(client, client.submit(study), study, tmp_path)
    with pytest.raises(InvalidSpec, match='got "test_accuracy"'):
        bench.run()


def one() -> dict[str, Any]:
    space = {"client_lr": {"float": [1e-3, 1e-2]}, "server_lr": {"float": [1e-3, 1e-2]}, "local_steps": 2}
    return {"label": "only", "name": "fedavg", "space": space}
