"""A store behind the client's methods, and a study to drive."""

from collections.abc import Callable, Sequence
from typing import Any

from driftline.study.spec import Study
from driftline.wire.driver_messages import Released, Stored, TrialResult
from driftline.wire.records import StudyRecord
from service.store.store import Store
from tests.clients import EveryClient


class StoreClient(EveryClient):
    """The client's methods, answered by a store in this process; counts calls and fails on demand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[str] = []
        self.finished: list[TrialResult] = []
        self.before: Callable[[str], None] = lambda call: None
        answers: dict[str, Callable[..., Any]] = {
            "study": store.studies.get,
            "trials": store.trials.find,
            "curves": lambda study_id, trials=(): store.curves.columns(study_id, trials or None),
            "pause": lambda study_id: store.studies.intend(study_id, "pause"),
            "resume": lambda study_id: store.studies.intend(study_id, "resume"),
            "cancel": lambda study_id: store.studies.intend(study_id, "cancel"),
            "acquire": store.leases.acquire,
            "heartbeat": store.leases.heartbeat,
            "store_plan": store.plans.put,
            "create_trials": store.trials.create,
            "start_pack": store.trials.start_pack,
            "report": store.curves.report,
            "finish": self._finish,
            "release": self._release,
        }
        for name, answer in answers.items():
            setattr(self, name, self._counted(name, answer))

    def _counted(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            self.calls.append(name)
            self.before(name)
            return answer(*given, **options)

        return call

    def submit(self, study: Study) -> str:
        return self.store.studies.create(study.to_json(), study.fingerprint()).id

    def _finish(self, study_id: str, attempt: int, results: Sequence[TrialResult]) -> Stored:
        stored = self.store.trials.finish(study_id, attempt, results)
        self.finished += [result for result in results if result.state != "WAITING"]
        return stored

    def _release(self, study_id: str, attempt: int, state: Released, reason: str = "") -> StudyRecord:
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
