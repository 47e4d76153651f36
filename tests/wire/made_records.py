"""Records of studies and trials, with changes."""

from typing import Any

from driftline.wire.records import StudyRecord, TrialRecord

TIMES: dict[str, Any] = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}


def study_record(**changes: Any) -> StudyRecord:
    """A study that runs."""
    values: dict[str, Any] = {"id": "01k6", "name": "small", "state": "RUNNING", "spec": {}, **TIMES}
    return StudyRecord(**values | changes)


def trial_record(number: int = 0, **changes: Any) -> TrialRecord:
    """A search trial that waits."""
    names = {"id": f"01k6.fedavg.s{number:05d}", "study_id": "01k6", "label": "fedavg", "phase": "search"}
    numbers = {"number": number, "seed": 0, "configuration": number}
    values: dict[str, Any] = {**names, **numbers, "hyperparameters": {"client_lr": 0.1}, **TIMES}
    return TrialRecord(**values | changes)
