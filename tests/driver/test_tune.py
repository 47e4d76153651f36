"""What Tune sees of a search; no Ray is started."""

import gc
import json
import re
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

pytest.importorskip("ray.tune")

from ray import cloudpickle
from ray.tune import Callback
from ray.tune.experiment import Trial

from driftline.errors import Conflict, DriftlineError, NotFound, StaleDriver, Unavailable
from service.driver.job import PackJob
from service.driver.lease import Watch
from service.driver.ray.tune import Halt, PackSearcher, Pulse
from service.driver.ray.worker import Worker, columns

JOB = PackJob(pack="p1", document={"task": {"grid_search": [1, 2]}}, prefix="x", cpus=2.0, gpus=0.5)


class Script:
    """A search that does as it is told."""

    def __init__(self, *jobs: Any) -> None:
        self._jobs = iter(jobs)
        self.finished = False
        self.desired = "run"
        self.further: dict[str, int] = {}
        self.heard: list[Any] = []
        self.error: Exception | None = None

    def next_job(self) -> Any:
        job = next(self._jobs, None)
        if isinstance(job, Exception):
            raise job
        self.finished = job == "finished"
        return None if self.finished else job

    def report(self, report: Any) -> None:
        if self.error:
            raise self.error
        self.heard.append(report["pack"])

    def lost(self, pack: str, reason: str) -> None:
        self.heard.append(f"lost {pack}: {reason}")


def searcher(*jobs: Any) -> tuple[PackSearcher, Script, Watch]:
    script = Script(*jobs)
    watch = Watch(None, "study", 1, every_s=1.0, stop=threading.Event())  # type: ignore[arg-type]
    return PackSearcher(script, watch), script, watch  # type: ignore[arg-type]


def report(pack: str = "p1") -> dict[str, Any]:
    return {"report": json.dumps({"pack": pack})}


def test_packs_are_handed_out_until_the_search_is_finished() -> None:
    tune_sees, _, watch = searcher(JOB, None, "finished")
    config = tune_sees.suggest("t1")
    assert PackJob.from_config(config) == JOB
    assert tune_sees.suggest("t2") is None
    assert tune_sees.suggest("t3") == "FINISHED"
    assert watch.why == ""


def test_reports_and_deaths_are_passed_on() -> None:
    tune_sees, script, _ = searcher(JOB, JOB)
    tune_sees.suggest("t1")
    tune_sees.suggest("t2")
    tune_sees.on_trial_result("t1", report())
    tune_sees.on_trial_complete("t1", report())
    tune_sees.on_trial_complete("t2", error=True)
    tune_sees.on_trial_complete("unknown", error=True)
    assert script.heard == ["p1", "p1", "lost p1: its worker died"]


@pytest.mark.parametrize(
    ("error", "why", "reason"),
    [
        (Unavailable("the service is away"), "lost", "the service is away"),
        (StaleDriver("replaced"), "stale", "replaced"),
        (Conflict("differs"), "lost", "differs"),
        (NotFound("no trial"), "lost", "no trial"),
        (DriftlineError("no sampler"), "failed", "no sampler"),
        (ZeroDivisionError("oh"), "failed", "ZeroDivisionError: oh"),
    ],
)
def test_no_error_leaves_the_searcher(error: Exception, why: str, reason: str) -> None:
    tune_sees, _, watch = searcher(error, JOB)
    assert tune_sees.suggest("t1") == "FINISHED"
    assert (watch.why, watch.reason) == (why, reason)
    assert tune_sees.suggest("t2") == "FINISHED"

    tune_sees, script, watch = searcher(JOB)
    tune_sees.suggest("t1")
    script.error = error
    tune_sees.on_trial_result("t1", report())
    assert (watch.why, watch.reason) == (why, reason)
    script.error = None
    tune_sees.on_trial_complete("t1", report())
    assert script.heard == ([] if why == "stale" else ["p1"])  # a replaced driver writes nothing more


@pytest.mark.parametrize("wish", ["pause", "cancel"])
def test_the_answer_to_a_report_brings_what_the_owner_wants(wish: str) -> None:
    tune_sees, script, watch = searcher(JOB, JOB)
    tune_sees.suggest("t1")
    tune_sees.on_trial_result("t1", report())
    assert watch.why == ""
    script.desired = wish
    tune_sees.on_trial_result("t1", report())
    assert watch.why == wish
    assert tune_sees.suggest("t2") == "FINISHED"


def test_tune_may_pickle_what_it_is_given() -> None:
    tune_sees, _, watch = searcher()
    assert isinstance(cloudpickle.loads(cloudpickle.dumps(tune_sees)), PackSearcher)
    assert cloudpickle.loads(cloudpickle.dumps(Halt(watch))).stop_all() is False
    assert isinstance(cloudpickle.loads(cloudpickle.dumps(Pulse(watch, tune_sees.hung))), Callback)


class Loop:
    """Tune's loop as a pulse sees it: turns of a second, and trials by name."""

    def __init__(self) -> None:
        self.packs, self.script, self.watch = searcher(*[JOB] * 4)
        self.watch.hang_s = 60.0
        self.killed: list[Any] = []
        self.stopped: list[Any] = []
        self.told: list[Any] = []
        self.seconds = 0.0
        self.pulse = Pulse(
            self.watch,
            self.packs.hung,
            kill=self.killed.append,
            further=self.packs.further,
            stop=self.stopped.append,
            go_on=lambda actor, until: self.told.append((actor, until)),
            clock=lambda: self.seconds,
        )
        self.watch.when_asked(self.pulse.request_stop)

    def start(self, name: str) -> None:
        self.packs.suggest(name)
        self.pulse.on_trial_start(0, [], self._trial(name))

    def heard(self, name: str) -> None:
        self.pulse.on_trial_result(0, [], self._trial(name), {})

    def reported(self, name: str) -> None:
        self.packs.on_trial_result(name, report())  # Tune tells its searcher first
        self.heard(name)

    def turn(self, times: int = 1, seconds: float = 1.0) -> None:
        for _ in range(times):
            self.seconds += seconds
            self.pulse.on_step_end(0, [])

    def die(self, name: str) -> None:
        self.packs.on_trial_complete(name, error=True)
        self.pulse.on_trial_error(0, [], self._trial(name))

    def end(self, name: str) -> None:
        self.pulse.on_trial_complete(0, [], self._trial(name))

    @staticmethod
    def _trial(name: str) -> Any:
        trial = Trial("packs", trial_id=name, stub=True)
        trial.temporary_state.ray_actor = f"actor of {name}"
        return trial


def test_a_worker_that_hangs_is_killed_and_its_pack_lost() -> None:
    loop = Loop()
    loop.start("hangs")
    loop.start("works")
    for _ in range(60):
        loop.turn()
        loop.heard("works")
    assert loop.killed == []
    loop.turn()
    assert loop.killed == ["actor of hangs"]
    loop.die("hangs")
    assert loop.script.heard == ["lost p1: its worker hung: no report for 61 s"]
    loop.start("hangs")  # another worker
    loop.heard("works")
    loop.turn(60)
    assert loop.killed == ["actor of hangs"]
    assert loop.watch.why == ""


def test_a_worker_learns_once_how_far_its_pack_goes_on() -> None:
    loop = Loop()
    loop.start("waits")
    loop.reported("waits")
    assert loop.told == []
    loop.script.further["p1"] = 9
    loop.reported("waits")
    loop.reported("waits")
    assert loop.told == [("actor of waits", 9)]


def test_a_pack_with_long_chunks_may_be_silent_for_longer() -> None:
    loop = Loop()
    loop.start("slow")
    for seconds in (59, 50, 20):  # the first report comes late: the pack is built before it
        loop.turn(seconds)
        loop.heard("slow")
    loop.turn(500)
    assert loop.killed == []
    loop.turn()
    assert loop.killed == ["actor of slow"]


def test_a_pack_is_not_blamed_while_it_waits_for_a_node_or_the_driver_for_the_api() -> None:
    loop = Loop()
    loop.packs.suggest("waits")  # handed out; no worker has started
    loop.start("works")
    for _ in range(3):
        loop.turn(seconds=600)  # a report that found no API
        loop.turn(10)
    assert loop.killed == []


def test_a_driver_gives_up_when_a_worker_cannot_be_killed() -> None:
    loop = Loop()
    loop.start("stuck")
    loop.turn(61)
    assert loop.watch.why == ""
    loop.turn(61)
    assert loop.killed == ["actor of stuck"]
    assert (loop.watch.why, loop.watch.reason) == ("lost", "a worker hangs and cannot be killed")
    assert loop.watch.at_once()


def test_workers_are_told_to_stop_those_that_start_too_late_included() -> None:
    loop = Loop()
    loop.packs.suggest("late")  # handed out; no worker has started
    for name in ("first", "ended", "second"):
        loop.start(name)
    loop.end("ended")
    assert loop.stopped == []
    loop.watch.ask("pause")
    assert loop.stopped == ["actor of first", "actor of second"]
    loop.watch.ask("cancel")  # they know
    assert loop.stopped == ["actor of first", "actor of second"]
    loop.start("late")
    assert loop.stopped[2:] == ["actor of late"]


@pytest.mark.parametrize("event", ["on_trial_complete", "on_trial_error"])
def test_tune_keeps_neither_packs_nor_reports_nor_statistics_that_ended(event: str) -> None:
    config = {"job": "a pack"}
    trial = Trial(
        "packs", trial_id="ended", stub=True, config=config, evaluated_params={**config}, experiment_tag="1_job"
    )
    pulse = Loop().pulse
    trial.update_last_result({**report(), "training_iteration": 1, "time_total_s": 2.0})
    assert "report" in trial.last_result
    assert "time_total_s" in trial.metric_analysis
    getattr(pulse, event)(0, [trial], trial)
    assert "report" not in trial.last_result
    assert trial.last_result["time_total_s"] == 2.0  # an empty result would make Tune ask the worker
    assert trial.metric_analysis == trial.metric_n_steps == {}
    assert trial.config == trial.evaluated_params == config == {}
    assert not trial.experiment_tag


def test_a_fit_is_halted_when_nothing_is_to_be_waited_for() -> None:
    _, _, watch = searcher()
    halt = Halt(watch)
    assert not halt.stop_all()
    watch.ask("cancel")
    assert halt.stop_all()
    assert halt("t1", {}) is False


def test_a_pack_asks_for_what_its_config_says() -> None:
    assert Worker.default_resource_request(JOB.config()).bundles == [{"CPU": 2.0, "GPU": 0.5}]
    assert Worker.default_resource_request({}).bundles == [{"CPU": 1.0}]


def test_a_worker_collects_again_from_its_first_pack_on() -> None:
    """`start_worker.py` lets it collect nothing while it imports its modules."""
    worker = Worker.__new__(Worker)
    gc.disable()
    try:
        worker.setup(JOB.config())
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


def test_a_pack_without_enough_memory_is_told_in_one_line_and_leaves_the_worker_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(job: PackJob, resting: Any, given: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation.")

    monkeypatch.setattr("service.driver.ray.worker.build", build)
    worker = Worker.__new__(Worker)
    worker.take(PackJob(pack="p1", document={}, prefix="").config())
    result = worker.step()
    report = json.loads(result["report"])
    told = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. See the documentation."
    assert (result["done"], report["error"], report["done"]) == (True, told, False)
    assert worker.pack is None


def test_a_worker_of_other_code_trains_nothing_and_fails_the_study_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.driver.ray.worker.build", lambda job, resting: pytest.fail("it trains"))
    monkeypatch.setattr("service.driver.ray.worker.code_digest", lambda: "aaaaaaaaaaaa")
    worker = Worker.__new__(Worker)
    worker.take(PackJob(pack="p1", document={}, prefix="", code="bbbbbbbbbbbb").config())
    result = worker.step()
    assert result["done"]
    packs, script, watch = searcher(JOB)
    packs.suggest("t1")
    packs.on_trial_complete("t1", result)
    assert (watch.why, script.heard) == ("failed", [])
    assert re.fullmatch(
        r"a worker on \S+ runs other code of Driftline \(aaaaaaaaaaaa\) than this driver \([0-9a-f]{12}\): .*",
        watch.reason,
    )


def test_lines_become_columns_of_each_member() -> None:
    lines = [
        {"round": 0, "member": 0, "test_loss": 2.0, "params": [1.0]},
        {"round": 0, "member": 1, "test_loss": float("nan"), "params": [1.0]},
        {"round": 1, "member": 0, "train_loss": 1.5, "diverged": False},
    ]
    assert columns(lines, 3) == [
        {"round": [0, 1], "test_loss": [2.0, None], "train_loss": [None, 1.5], "diverged": [None, False]},
        {"round": [0], "test_loss": [None]},
        {},
    ]


def test_a_worker_imports_ray_and_trainers_only() -> None:
    code = """
import sys, service.driver.ray.worker, trainers.engine.packs.pack, trainers.trial.document
heavy = {"optuna", "mlflow", "sqlalchemy", "httpx", "fastapi", "matplotlib", "sklearn", "scipy"}
ours = {"driftline.wire.records", "driftline.client.api_client", "driftline.results.pareto", "driftline.errors"}
print(sorted((heavy | ours) & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
