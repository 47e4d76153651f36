"""A store behind the client's methods, and a study to drive."""

from collections.abc import Callable, Sequence
from typing import Any

from driftline.study.spec import Study
from driftline.wire.driver_messages import Desired, Lease, NewTrial, Released, Report, Stored, TrialResult
from driftline.wire.records import StudyPlan, StudyRecord, TrialRecord
from service.store.store import Store
from tests.clients import EveryClient


class StoreClient(EveryClient):
    """The client's methods, answered by a store in this process; counts calls and fails on demand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[str] = []
        self.finished: list[TrialResult] = []
        self.before: Callable[[str], None] = lambda call: None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.before(name)

    def submit(self, study: Study) -> str:
        return self.store.studies.create(study.to_json(), study.fingerprint()).id

    def study(self, study_id: str) -> StudyRecord:
        self._call("study")
        return self.store.studies.get(study_id)

    def trials(
        self, study_id: str, *, label: str | None = None, phase: Any = None, state: Any = None
    ) -> list[TrialRecord]:
        self._call("trials")
        return self.store.trials.find(study_id, label=label, phase=phase, state=state)

    def curves(self, study_id: str, trials: Sequence[str] = ()) -> dict[str, dict[str, list[Any]]]:
        self._call("curves")
        return self.store.curves.columns(study_id, trials or None)

    def pause(self, study_id: str) -> StudyRecord:
        return self.store.studies.intend(study_id, "pause")

    def resume(self, study_id: str) -> StudyRecord:
        return self.store.studies.intend(study_id, "resume")

    def cancel(self, study_id: str) -> StudyRecord:
        return self.store.studies.intend(study_id, "cancel")

    def acquire(self, study_id: str, holder: str) -> Lease:
        self._call("acquire")
        return self.store.leases.acquire(study_id, holder)

    def heartbeat(self, study_id: str, attempt: int) -> Desired:
        self._call("heartbeat")
        return self.store.leases.heartbeat(study_id, attempt)

    def store_plan(self, study_id: str, attempt: int, plan: StudyPlan, reason: str = "") -> StudyPlan:
        self._call("store_plan")
        return self.store.plans.put(study_id, attempt, plan, reason)

    def create_trials(self, study_id: str, attempt: int, trials: Sequence[NewTrial]) -> list[TrialRecord]:
        self._call("create_trials")
        return self.store.trials.create(study_id, attempt, trials)

    def start_pack(
        self, study_id: str, attempt: int, pack: str, trials: Sequence[str], gpus: float = 0.0
    ) -> list[TrialRecord]:
        self._call("start_pack")
        return self.store.trials.start_pack(study_id, attempt, pack, trials, gpus)

    def report(self, study_id: str, report: Report) -> Stored:
        self._call("report")
        return self.store.curves.report(study_id, report)

    def finish(self, study_id: str, attempt: int, results: Sequence[TrialResult]) -> Stored:
        self._call("finish")
        stored = self.store.trials.finish(study_id, attempt, results)
        self.finished += [result for result in results if result.state != "WAITING"]
        return stored

    def release(self, study_id: str, attempt: int, state: Released, reason: str = "") -> StudyRecord:
        self._call("release")
        self.store.leases.release(study_id, attempt, state, reason)
        return self.store.studies.get(study_id)


def quadratic(**changes: Any) -> Study:
    """Two methods on the two-client quadratic; some settings diverge."""
    space = {"client_lr": {"float": [1e-3, 0.5], "log": True}, "server_lr": {"float": [1e-3, 1.0], "log": True}}
    document = {
        "name": "quadratic",
        "task": {"name": "quadratic", "problem": "two_clients"},
        "methods": [
            {"label": "short", "name": "fedavg", "space": {**space, "local_steps": {"choice": [1, 2]}}},
            {"label": "long", "name": "fedavg", "space": {**space, "local_steps": {"choice": [5, 10]}}},
        ],
        "objective": {"quality": "loss"},
        "budget": {"trials_per_method": 6, "rounds": 30, "seeds": 2, "confirm": 2},
        "resources": {"gpu": 0, "packs": 3},
        "sampler": "quasi_random",
    }
    return Study.from_json({**document, **changes})
