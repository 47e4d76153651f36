"""What the scheduler should do next, as a pure function of what it sees.

Level-triggered: it looks at how things are, not at what has happened, so that deciding twice, late, or after a restart
gives the right thing again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from service.scheduler.fair_order import in_turn
from service.store.leases import Driven

_BEFORE_THE_END = frozenset({"PENDING", "QUEUED", "RUNNING"})
MAX_DEATHS = 3
"""A study fails when so many of its drivers in a row were lost without a finished trial in between."""


@dataclass(frozen=True)
class Launched:
    """A driver that was started, by this scheduler or by another one before it.

    Attributes:
        attempt: The attempt it was to acquire.
        alive: Whether its launcher sees it running.
        since: When it was started, or first seen, in seconds since 1970.
        cluster: The Ray cluster that it uses.
        study: Its study's name.
        idle_since: When it was first seen to hold nothing after it had let go of its study; None before that.
        silent_since: When its lease was first seen to have run out; None while it runs.
        reason: What its launcher says of it: why it has ended, or does not come up yet.
        hopeless: Whether another start would end in the same way.
        adopted: Whether another scheduler had started it.
        waiting: Whether it waits in a queue outside of this service; see `service.launchers.base.Seen`.
        killed: Whether its launcher was told to kill it; until it has ended, no other one is started.
    """

    attempt: int
    alive: bool
    since: float
    cluster: str
    study: str
    idle_since: float | None = None
    silent_since: float | None = None
    reason: str = ""
    hopeless: bool = False
    adopted: bool = False
    waiting: bool = False
    killed: bool = False


@dataclass(frozen=True)
class Start:
    """Start a driver for the study; it will acquire this attempt or a later one."""

    study_id: str
    attempt: int


@dataclass(frozen=True)
class Queue:
    """Let the study wait, and say for what."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Note:
    """Say of a study that is driven what its launcher has to say; "" when that is over."""

    study_id: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class Lost:
    """Note that the study's driver was lost; attempt 0 is one that never came to acquire.

    One that another scheduler had started is not counted against the study: the whole service may have gone away.
    """

    study_id: str
    attempt: int
    reason: str
    counted: bool = True


@dataclass(frozen=True)
class Stop:
    """Stop what the launcher still runs for the study."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Kill:
    """End the study's driver at once: it hangs. To be done again until it has ended."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Forget:
    """Let go of a driver that waits in a queue for another turn: the next start finds it there."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Settle:
    """Put a study that no driver holds into a state."""

    study_id: str
    state: Literal["PAUSED", "CANCELLED", "FAILED"]
    reason: str


Action = Start | Queue | Note | Lost | Stop | Kill | Forget | Settle


def reconcile(
    studies: Sequence[Driven],
    launched: Mapping[str, Launched],
    clusters: Mapping[str, str],
    now: float,
    *,
    max_deaths: int = MAX_DEATHS,
    start_seconds: float = 600.0,
    end_seconds: float = 60.0,
    back_seconds: float = 60.0,
    patience_seconds: float = 900.0,
    unanswered: float = float("-inf"),
    served: Mapping[str, float] | None = None,
    per_project: int | None = None,
) -> list[Action]:
    """The actions that bring what is closer to what should be.

    A driver that is lost is noted in one round and replaced in the next.

    Args:
        studies: The unfinished studies that are not paused.
        launched: Drivers that were started, by study id.
        clusters: The Ray cluster that each study would run on; a cluster runs one study at a time, and a study that is
            not named has a cluster of its own.
        now: Seconds since 1970.
        max_deaths: A study fails when so many drivers were lost in a row.
        start_seconds: A driver that has not acquired its study after so long is lost.
        end_seconds: A driver that has let go of its study may take so long to clean up; then it is stopped.
        back_seconds: A driver that its launcher sees alive, and whose lease has run out, may take so long to come back
            while the API answers; then it hangs, and is killed.
        patience_seconds: A driver that is silent for so long hangs whether the API answers or not: one that cannot
            reach the API ends by itself before that.
        unanswered: When the API last did not answer, in seconds since 1970.
        served: When a study of a project was last begun, by project; whoever waited longer comes first.
        per_project: How many studies of one project may run at once; None is as many as there are.

    Returns:
        Actions, in the order in which to do them; none when everything is as it should be.
    """
    actions: list[Action] = []
    busy = {ours.cluster: ours.study for ours in launched.values() if ours.alive}
    free: list[Driven] = []
    running: dict[str, int] = {}
    for study in sorted(studies, key=lambda study: study.id):
        ours = launched.get(study.id)
        if study.held or (ours is not None and ours.alive):
            busy[clusters.get(study.id, study.id)] = study.name
            running[study.project] = running.get(study.project, 0) + 1
        hangs = ours is not None and _hangs(ours, now, back_seconds, patience_seconds, unanswered)
        trouble = _trouble(study, ours, now, start_seconds, end_seconds, hangs)
        if trouble:
            actions += trouble
        elif not study.held and ours is None:
            free.append(study)
    unfinished = {study.id for study in studies}
    for study_id, ours in launched.items():
        if study_id not in unfinished:
            actions += _ended(study_id, ours, now, end_seconds)
    waiting: list[Driven] = []
    for study in free:
        settled = _settled(study, max_deaths)
        if settled is None:
            waiting.append(study)
        else:
            actions.append(settled)
    for study in in_turn(waiting, running, served or {}):
        cluster = clusters.get(study.id, study.id)
        if cluster in busy:
            actions += _queue(
                study, f"waits until study {busy[cluster]} has finished: one study at a time on a Ray cluster"
            )
        elif per_project is not None and running.get(study.project, 0) >= per_project:
            actions += _queue(study, f"waits for another study of its project: {per_project} at a time")
        else:
            busy[cluster] = study.name
            running[study.project] = running.get(study.project, 0) + 1
            actions.append(Start(study.id, study.attempt + 1))
    return actions


def _queue(study: Driven, reason: str) -> list[Action]:
    return [] if (study.state, study.reason) == ("QUEUED", reason) else [Queue(study.id, reason)]


def _ended(study_id: str, ours: Launched, now: float, end_seconds: float) -> list[Action]:
    """Forget a driver that has let go of its study and ended, or takes too long to end."""
    if not ours.alive:
        return [Stop(study_id, "it has ended")]
    if ours.waiting:
        return [Stop(study_id, "its study needs no driver")]
    if ours.idle_since is not None and now - ours.idle_since > end_seconds:
        return [Stop(study_id, f"it has let go of its study and not ended within {end_seconds:.0f} s")]
    return []


def _hangs(ours: Launched, now: float, back_seconds: float, patience_seconds: float, unanswered: float) -> bool:
    """Whether a driver that is alive has been silent for too long to be only cut off from the API."""
    if not ours.alive or ours.silent_since is None:
        return False
    return now - max(ours.silent_since, unanswered) > back_seconds or now - ours.silent_since > patience_seconds


def _trouble(
    study: Driven, ours: Launched | None, now: float, start_seconds: float, end_seconds: float, hangs: bool
) -> Collection[Action]:
    """What to do about a driver that is lost, or does not come up; nothing when there is none, or it is well."""
    if ours is not None and ours.killed:
        if not ours.alive:
            return [Stop(study.id, "it has ended")]
        tells = ours.reason and study.state in _BEFORE_THE_END
        waits = _queue(study, f"waits until its last driver has ended: {ours.reason}") if tells else []
        return [Kill(study.id, "it has not ended yet"), *waits]
    acquired = ours is not None and study.attempt >= ours.attempt
    if ours is not None and ours.waiting:
        return _waiting(study, ours, acquired)
    if study.lost:
        if ours is None:
            return [Lost(study.id, study.attempt, "it went away with the service that had started it", counted=False)]
        if hangs:  # what it still sends is refused from here on
            reason = "it hangs: its process lives, and nothing was heard of it while the API answered"
            return [Lost(study.id, study.attempt, reason), Kill(study.id, reason), *_hopeless(study, ours)]
        if ours.alive:
            return []  # the API was away, or is: to start another driver would not help, and cost what this one knows
        reason = ours.reason or "it was silent for longer than its lease, or its process has ended"
        return [Stop(study.id, "it is lost"), Lost(study.id, study.attempt, reason), *_hopeless(study, ours)]
    if ours is None:
        return []
    if not ours.alive:
        if study.held:
            lost = Lost(study.id, study.attempt, ours.reason or "its process has ended")
            return [lost, Stop(study.id, "it has ended"), *_hopeless(study, ours)]
        if acquired:
            return _ended(study.id, ours, now, end_seconds)
        reason = ours.reason or "its process ended before it took the study"
        lost = Lost(study.id, 0, reason, counted=not ours.adopted)
        return [lost, Stop(study.id, "it has ended"), *_hopeless(study, ours)]
    if study.held:
        told = acquired and study.state == "RUNNING" and study.reason != ours.reason
        return [Note(study.id, study.attempt, ours.reason)] if told else []
    if acquired:
        return _ended(study.id, ours, now, end_seconds)
    if ours.hopeless:
        return [Stop(study.id, ours.reason), *_hopeless(study, ours)]
    if now - ours.since > start_seconds:
        why = f": {ours.reason}" if ours.reason else ""
        return [
            Kill(study.id, "it did not take the study in time"),
            Lost(study.id, 0, f"it did not take the study within {start_seconds:.0f} s{why}"),
        ]
    if ours.reason and study.state in _BEFORE_THE_END:
        return _queue(study, ours.reason)
    return []


def _waiting(study: Driven, ours: Launched, acquired: bool) -> Collection[Action]:
    """What to do about a driver in a queue: it comes by itself, and one that was put back there was not at fault."""
    if study.held:
        return []
    lost = [Lost(study.id, study.attempt, ours.reason, counted=False)] if study.lost else []
    if study.state in ("PAUSING", "CANCELLING"):
        return [*lost, Stop(study.id, "its study needs no driver")]
    if lost or acquired:
        return [*lost, Forget(study.id, ours.reason)]
    return _queue(study, ours.reason)


def _hopeless(study: Driven, ours: Launched) -> list[Action]:
    """The end of a study whose driver would not come up another time either."""
    if not ours.hopeless:
        return []
    if study.state == "CANCELLING":
        return [Settle(study.id, "CANCELLED", "")]
    return [Settle(study.id, "FAILED", ours.reason or "its driver cannot be started")]


def _settled(study: Driven, max_deaths: int) -> Settle | None:
    """How a study without a driver ends up, when it needs no other one."""
    if study.state == "PAUSING":
        return Settle(study.id, "PAUSED", "")
    if study.state == "CANCELLING":
        return Settle(study.id, "CANCELLED", "")
    if study.deaths >= max_deaths:
        last = study.reason.removesuffix("; it is started again")
        why = f": {last}" if last else ""
        reason = f"{study.deaths} drivers in a row were lost without finishing a trial{why}"
        return Settle(study.id, "FAILED", f"{reason}; see the driver's log, then resume")
    return None
