"""State machines of studies and trials: the only place that allows or rejects transitions.

    study   PENDING ──> QUEUED ──> RUNNING ──> SUCCEEDED | FAILED
               ^           |        |  ^ |
               |           v        v  | v
               +──── PAUSED <── PAUSING  CANCELLING ──> CANCELLED

    trial   WAITING <──> RUNNING ──> COMPLETE | STOPPED | DIVERGED | FAILED | CANCELLED

A finished trial is final, except that the study's owner may retry a FAILED one, which becomes WAITING. A finished study
is final too, except that its owner may resume a FAILED one, and extend or retry a FAILED or SUCCEEDED one; it becomes
PENDING.
"""

from typing import Final

from driftline.errors import Conflict
from driftline.wire.records import STUDY_DELETABLE, StudyState, TrialState

STUDY_MOVES: Final[dict[StudyState, frozenset[StudyState]]] = {
    "PENDING": frozenset({"QUEUED", "RUNNING", "PAUSED", "CANCELLED", "FAILED"}),
    "QUEUED": frozenset({"PENDING", "RUNNING", "PAUSED", "CANCELLED", "FAILED"}),
    "RUNNING": frozenset({"PENDING", "QUEUED", "PAUSING", "PAUSED", "CANCELLING", "CANCELLED", "SUCCEEDED", "FAILED"}),
    "PAUSING": frozenset({"RUNNING", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"}),
    "PAUSED": frozenset({"PENDING", "CANCELLED"}),
    "CANCELLING": frozenset({"CANCELLED", "SUCCEEDED", "FAILED"}),
    "CANCELLED": frozenset(),
    "SUCCEEDED": frozenset({"PENDING"}),
    "FAILED": frozenset({"PENDING"}),
}

TRIAL_MOVES: Final[dict[TrialState, frozenset[TrialState]]] = {
    "WAITING": frozenset({"RUNNING", "COMPLETE", "STOPPED", "DIVERGED", "FAILED", "CANCELLED"}),
    "RUNNING": frozenset({"WAITING", "COMPLETE", "STOPPED", "DIVERGED", "FAILED", "CANCELLED"}),
    "COMPLETE": frozenset(),
    "STOPPED": frozenset(),
    "DIVERGED": frozenset(),
    "FAILED": frozenset(),
    "CANCELLED": frozenset(),
}

DRIVEN: Final[frozenset[StudyState]] = frozenset({"PENDING", "QUEUED", "RUNNING", "PAUSING", "CANCELLING"})
"""States in which a driver may hold the study."""


def _kept(*states: StudyState) -> dict[StudyState, StudyState]:
    """Requests that leave a study in its state."""
    return {state: state for state in states}


_MORE: Final[dict[StudyState, StudyState]] = {
    **_kept("PENDING", "QUEUED", "RUNNING", "PAUSING", "PAUSED"), "SUCCEEDED": "PENDING", "FAILED": "PENDING",
}  # fmt: skip

_INTENTS: Final[dict[str, dict[StudyState, StudyState]]] = {
    "pause": {"PENDING": "PAUSED", "QUEUED": "PAUSED", "RUNNING": "PAUSING", **_kept("PAUSING", "PAUSED")},
    "resume": {**_kept("PENDING", "QUEUED", "RUNNING"), "PAUSING": "RUNNING", "PAUSED": "PENDING", "FAILED": "PENDING"},
    "cancel": {
        "PENDING": "CANCELLED", "QUEUED": "CANCELLED", "RUNNING": "CANCELLING", "PAUSING": "CANCELLING",
        "PAUSED": "CANCELLED", **_kept("CANCELLING", "CANCELLED"),
    },
    "extend": _MORE,
    "retry": _MORE,
}  # fmt: skip


def check_study(study_id: str, old: StudyState, new: StudyState) -> None:
    """Check that a study may move to another state.

    Raises:
        Conflict: The move is not one of `STUDY_MOVES`.
    """
    if new not in STUDY_MOVES[old]:
        raise Conflict(f"a study that is {old.lower()} cannot become {new.lower()}: {study_id}", state=old)


def check_trial(trial_id: str, old: TrialState, new: TrialState) -> None:
    """Check that a driver may move a trial to another state.

    Raises:
        Conflict: The move is not one of `TRIAL_MOVES`.
    """
    if new not in TRIAL_MOVES[old]:
        final = "; a finished trial is final" if not TRIAL_MOVES[old] else ""
        raise Conflict(f"a trial that is {old.lower()} cannot become {new.lower()}: {trial_id}{final}", state=old)


def check_deletable(study_id: str, state: StudyState) -> None:
    """Allow the owner to delete a study in this state.

    Raises:
        Conflict: The study runs or waits to run.
    """
    if state not in STUDY_DELETABLE:
        raise Conflict(f"a study that is {state.lower()} cannot be deleted: {study_id}; cancel it first", state=state)


def check_retry(trial_id: str, state: TrialState) -> None:
    """Check that the study's owner may retry a trial.

    Raises:
        Conflict: The trial is not FAILED.
    """
    if state != "FAILED":
        raise Conflict(f"only failed trials are retried, got a {state.lower()} one: {trial_id}", state=state)


def intended(study_id: str, state: StudyState, intent: str) -> StudyState:
    """The state to which an owner's request leads; the present state if the request changes nothing.

    Args:
        study_id: For the error.
        state: The study's state now.
        intent: "pause", "resume", "cancel", "extend" or "retry".

    Raises:
        Conflict: The request is not allowed in this state.
    """
    target = _INTENTS[intent].get(state)
    if target is None:
        allowed = _listed(_INTENTS[intent])
        raise Conflict(f"{intent} needs a study that is {allowed}, got a {state.lower()} one: {study_id}", state=state)
    return target


def _listed(states: dict[StudyState, StudyState]) -> str:
    names = [state.lower() for state in states]
    return ", ".join(names[:-1]) + " or " + names[-1]
