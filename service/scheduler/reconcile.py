"""What the scheduler should do next, as a pure function of what it sees.

Level-triggered: it looks at the current state, not at events, so that deciding twice, late, or after a restart is
correct as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from service.launchers.base import Seen
from service.scheduler.fair_order import in_turn
from service.store.leases import Driven

_BEFORE_THE_END = frozenset({"PENDING", "QUEUED", "RUNNING"})
MAX_DEATHS = 3
"""A study fails if this many of its drivers are lost in a row without a finished trial or checkpoint of new rounds."""

END_SECONDS = 60.0
"""How long a driver may take to clean up after it has released its study; then it is stopped."""

PATIENCE_SECONDS = 900.0
"""A driver that is silent for this long counts as hung even if the API does not answer: a driver that cannot reach the
API ends by itself before that."""


@dataclass(frozen=True, kw_only=True)
class Launched(Seen):
    """A driver that was started, by this scheduler or by another one before it, as its launcher saw it last.

    Attributes:
        attempt: The attempt it was to acquire.
        since: When it was started, or first seen, in seconds since 1970.
        cluster: The Ray cluster that it uses.
        project: Its study's project; "" if the study was deleted or has ended.
        study: Its study's name.
        idle_since: When it was first seen after it had released its study; None before that.
        silent_since: When its lease was first seen to have expired; None while the lease runs.
        adopted: Whether another scheduler had started it.
        killed: Whether its launcher was told to kill it; no other driver is started until it has ended.
    """

    attempt: int
    since: float
    cluster: str
    project: str
    study: str
    idle_since: float | None = None
    silent_since: float | None = None
    adopted: bool = False
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
    """Show a message of the launcher as the reason of a running study; "" clears the reason."""

    study_id: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class Lost:
    """Record that the study's driver was lost.

    Attributes:
        study_id: The study.
        attempt: Its newest attempt when it was looked at; if there is a newer one, the action no longer applies.
        reason: How the loss was noticed.
        counted: Whether it counts against the study. A driver that another scheduler had started does not: the whole
            service may have been down.
        early: Whether the driver ended before it acquired the study, and so has no attempt.
    """

    study_id: str
    attempt: int
    reason: str
    counted: bool = True
    early: bool = False


@dataclass(frozen=True)
class Stop:
    """Stop what the launcher still runs for the study."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Kill:
    """Kill the study's driver, because it hangs; repeated until it has ended."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Forget:
    """Forget a driver that waits in a queue for another turn: the next start finds it there."""

    study_id: str
    reason: str


@dataclass(frozen=True)
class Settle:
    """Set the state of a study that no driver holds."""

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
    start_seconds: float = 600.0,
    back_seconds: float = 60.0,
    unanswered: float = float("-inf"),
    served: Mapping[str, float] | None = None,
    per_project: int | None = None,
) -> list[Action]:
    """The actions that bring the current state closer to the desired one.

    A lost driver is recorded in one call and replaced in the next.

    Args:
        studies: The unfinished studies that are not paused.
        launched: Drivers that were started, by study id.
        clusters: The Ray cluster that each study would run on. A cluster runs one study at a time; a study that is
            missing here has its own.
        now: Seconds since 1970.
        start_seconds: A driver that has not acquired its study within this time is lost.
        back_seconds: How long a live driver whose lease has expired may stay silent while the API answers; then it
            hangs, and is killed.
        unanswered: When the API last failed to answer, in seconds since 1970.
        served: When a study of each project was last started; projects that waited longer come first.
        per_project: How many studies of one project may run at once; None sets no limit.

    Returns:
        Actions, in the order in which to do them; none if nothing needs to change.
    """
    actions: list[Action] = []
    busy = {driver.cluster: (driver.project, driver.study) for driver in launched.values() if driver.alive}
    free: list[Driven] = []
    running: dict[str, int] = {}
    for study in sorted(studies, key=lambda study: study.id):
        driver = launched.get(study.id)
        if study.held or (driver is not None and driver.alive):
            busy[clusters.get(study.id, study.id)] = study.project, study.name
            running[study.project] = running.get(study.project, 0) + 1
        hangs = driver is not None and _hangs(driver, now, back_seconds, unanswered)
        trouble = _trouble(study, driver, now, start_seconds, hangs)
        if trouble:
            actions += trouble
        elif not study.held and driver is None:
            free.append(study)
    unfinished = {study.id for study in studies}
    for study_id, driver in launched.items():
        if study_id not in unfinished:
            actions += _ended(study_id, driver, now)
    waiting: list[Driven] = []
    for study in free:
        settled = _settled(study)
        if settled is None:
            waiting.append(study)
        else:
            actions.append(settled)
    for study in in_turn(waiting, running, served or {}):
        cluster = clusters.get(study.id, study.id)
        if cluster in busy:
            project, name = busy[cluster]
            which = f"study {name}" if project == study.project else "another study"  # whose name it may not see
            actions += _queue(study, f"waits until {which} has finished: one study at a time on a Ray cluster")
        elif per_project is not None and running.get(study.project, 0) >= per_project:
            actions += _queue(study, f"waits for another study of its project: {per_project} at a time")
        else:
            busy[cluster] = study.project, study.name
            running[study.project] = running.get(study.project, 0) + 1
            actions.append(Start(study.id, study.attempt + 1))
    return actions


def _queue(study: Driven, reason: str) -> list[Action]:
    return [] if (study.state, study.reason) == ("QUEUED", reason) else [Queue(study.id, reason)]


def _ended(study_id: str, driver: Launched, now: float) -> list[Action]:
    """Stops a driver that has released its study, if it has ended, waits in a queue, or takes too long to end."""
    if not driver.alive:
        return [Stop(study_id, "it has ended")]
    if driver.waiting:
        return [Stop(study_id, "its study needs no driver")]
    if driver.idle_since is not None and now - driver.idle_since > END_SECONDS:
        return [Stop(study_id, f"it released its study, but did not end within {END_SECONDS:.0f} s")]
    return []


def _hangs(driver: Launched, now: float, back_seconds: float, unanswered: float) -> bool:
    """Whether a live driver has been silent for too long to be merely cut off from the API."""
    if not driver.alive or driver.silent_since is None:
        return False
    return now - max(driver.silent_since, unanswered) > back_seconds or now - driver.silent_since > PATIENCE_SECONDS


def _trouble(
    study: Driven, driver: Launched | None, now: float, start_seconds: float, hangs: bool
) -> Collection[Action]:
    """What to do about a driver that is lost or does not come up; nothing if there is none, or no problem."""
    if driver is not None and driver.killed:
        if not driver.alive:
            return [Stop(study.id, "it has ended")]
        tells = driver.reason and study.state in _BEFORE_THE_END
        waits = _queue(study, f"waits until its last driver has ended: {driver.reason}") if tells else []
        return [Kill(study.id, "it has not ended yet"), *waits]
    acquired = driver is not None and study.attempt >= driver.attempt
    if driver is not None and driver.waiting:
        return _waiting(study, driver, acquired)
    if study.lost:
        if driver is None:
            return [Lost(study.id, study.attempt, "it ended with the service that had started it", counted=False)]
        if hangs:  # from here on the API rejects what it sends
            reason = "it hangs: its process is alive, but was silent while the API answered"
            return [Lost(study.id, study.attempt, reason), Kill(study.id, reason), *_hopeless(study, driver)]
        if driver.alive:
            return []  # the API is or was down: another driver would not help, and this one would lose unsaved work
        reason = driver.reason or "it was silent for longer than its lease, or its process has ended"
        return [Stop(study.id, "it is lost"), Lost(study.id, study.attempt, reason), *_hopeless(study, driver)]
    if driver is None:
        return []
    if not driver.alive:
        if study.held:
            lost = Lost(study.id, study.attempt, driver.reason or "its process has ended")
            return [lost, Stop(study.id, "it has ended"), *_hopeless(study, driver)]
        if acquired:
            return _ended(study.id, driver, now)
        reason = driver.reason or "its process ended before it took the study"
        lost = Lost(study.id, study.attempt, reason, counted=not driver.adopted, early=True)
        return [lost, Stop(study.id, "it has ended"), *_hopeless(study, driver)]
    if study.held:
        told = acquired and study.state == "RUNNING" and study.reason != driver.reason
        return [Note(study.id, study.attempt, driver.reason)] if told else []
    if acquired:
        return _ended(study.id, driver, now)
    if driver.hopeless:
        return [Stop(study.id, driver.reason), *_hopeless(study, driver)]
    if now - driver.since > start_seconds:
        why = f": {driver.reason}" if driver.reason else ""
        late = f"it did not take the study within {start_seconds:.0f} s{why}"
        return [
            Kill(study.id, "it did not take the study in time"),
            Lost(study.id, study.attempt, late, early=True),
        ]
    if driver.reason and study.state in _BEFORE_THE_END:
        return _queue(study, driver.reason)
    return []


def _waiting(study: Driven, driver: Launched, acquired: bool) -> Collection[Action]:
    """What to do about a driver in a queue: it starts by itself, and is not to blame if it was put back there."""
    if study.held:
        return []
    lost = [Lost(study.id, study.attempt, driver.reason, counted=False)] if study.lost else []
    if study.state in ("PAUSING", "CANCELLING"):
        return [*lost, Stop(study.id, "its study needs no driver")]
    if lost or acquired:
        return [*lost, Forget(study.id, driver.reason)]
    return _queue(study, driver.reason)


def _hopeless(study: Driven, driver: Launched) -> list[Action]:
    """Ends a study whose next driver would fail in the same way."""
    if not driver.hopeless:
        return []
    if study.state == "CANCELLING":
        return [Settle(study.id, "CANCELLED", "")]
    return [Settle(study.id, "FAILED", driver.reason or "its driver cannot be started")]


def _settled(study: Driven) -> Settle | None:
    """The state of a study that needs no further driver; None if it needs one."""
    if study.state == "PAUSING":
        return Settle(study.id, "PAUSED", "")
    if study.state == "CANCELLING":
        return Settle(study.id, "CANCELLED", "")
    if study.deaths >= MAX_DEATHS:
        last = study.reason.removesuffix("; it is started again")
        why = f": {last}" if last else ""
        reason = f"{study.deaths} drivers in a row were lost without finishing a trial or writing a checkpoint{why}"
        return Settle(study.id, "FAILED", f"{reason}; see the driver's log, then resume")
    return None
