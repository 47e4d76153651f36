"""Who drives a study: leases whose attempt numbers are fencing tokens, and what the scheduler sees and settles."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from driftline.errors import Conflict, StaleDriver
from driftline.wire.driver_messages import Desired, Lease, Released
from driftline.wire.records import StudyState
from service.store import trial_rows
from service.store.local_processes import gone
from service.store.schema import DRIVERS, STUDIES
from service.store.session import Session
from service.store.states import DRIVEN

_DESIRED: dict[StudyState, Desired] = {
    "PAUSING": "pause",
    "PAUSED": "pause",
    "CANCELLING": "cancel",
    "CANCELLED": "cancel",
}

RETRIED = "retried"
"""In place of the fingerprint that a driver knows of its study: some of its trials run again under the next driver."""

_SLACK_S = 60.0
"""What the clocks of two machines may differ by."""


@dataclass(frozen=True)
class Driven:
    """An unfinished study as the scheduler sees it.

    Attributes:
        id: The study's id; ids sort by time of creation.
        project: Whom it belongs to.
        name: The study's name.
        state: PENDING, QUEUED, RUNNING, PAUSING or CANCELLING.
        reason: Why it is in this state.
        attempt: Attempt of its newest driver; 0 when it never had one.
        held: Whether that driver holds the study: it has not let go, its lease runs, and it is not known to be dead.
        lost: Whether that driver neither holds the study nor has let go of it.
        deaths: Drivers lost in a row without a finished trial in between.
    """

    id: str
    project: str
    name: str
    state: StudyState
    reason: str
    attempt: int
    held: bool
    lost: bool
    deaths: int


class Leases:
    """Keeps who drives which study, and until when."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def acquire(self, study_id: str, holder: str) -> Lease:
        """Give the study to a driver under the next attempt; trials that ran go back to WAITING with what they have.

        Args:
            study_id: Id of the study.
            holder: Who asks: ``host/pid``. The holder of now may ask again and gets the next attempt.

        Raises:
            NotFound: No such study.
            Conflict: Another driver holds the study, or the study is in no state to be driven.
        """
        now = self._session.clock()
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            if study.state not in DRIVEN:
                raise Conflict(f"a study that is {study.state} needs no driver: {study_id}", state=study.state)
            old = self._session.driver(connection, study_id)
            attempt, deaths = 1, 0
            ended_at = now if old is None else min(now, old.expires_at)
            if old is not None:
                attempt, deaths = old.attempt + 1, old.deaths
                if old.holder != holder and holding(old, now):
                    left = old.expires_at - now
                    raise Conflict(
                        f"attempt {old.attempt} of {old.holder} holds study {study_id} for {left:.0f} s more"
                    )
                connection.execute(sa.delete(DRIVERS).where(DRIVERS.c.study_id == study_id))
            connection.execute(
                sa.insert(DRIVERS).values(
                    study_id=study_id,
                    attempt=attempt,
                    holder=holder,
                    acquired_at=now,
                    expires_at=now + self._session.lease_seconds,
                    released=False,
                    deaths=deaths,
                    fingerprint=study.fingerprint,
                )
            )
            trial_rows.stop(connection, study_id, "WAITING", now, ended_at=ended_at)
            if study.started_at is None:
                connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study_id).values(started_at=now))
            self._session.move(connection, study, "RUNNING" if study.state in ("PENDING", "QUEUED") else study.state)
        return Lease(attempt=attempt, lease_seconds=self._session.lease_seconds)

    def heartbeat(self, study_id: str, attempt: int) -> Desired:
        """Renew the lease, and say what the study's owner wants.

        Raises:
            StaleDriver: The attempt no longer holds the study.
        """
        with self._session.write() as connection:
            return _DESIRED.get(self._session.fenced(connection, study_id, attempt).state, "run")

    def release(self, study_id: str, attempt: int, state: Released, reason: str = "") -> StudyState:
        """Let go of the study. The same again changes nothing.

        A driver that pauses although nobody wants that (its machine goes away) leaves the study PENDING: it is started
        again. So does one that has done all that the study asked for when it took it, if a larger budget or a retry of
        FAILED trials was asked for since.

        Returns:
            The study's state afterwards.

        Raises:
            StaleDriver: The attempt no longer holds the study.
            Conflict: SUCCEEDED with trials that are not finished, or CANCELLED or PAUSED against the owner's wish.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            driver = self._session.driver(connection, study_id)
            if driver is not None and driver.released and driver.attempt == attempt:
                waits = study.state in ("PENDING", "QUEUED") and state in ("PAUSED", "SUCCEEDED")
                if study.state == state or waits or (state == "PAUSED" and study.state == "CANCELLED"):
                    return self._state(connection, study_id)
                raise StaleDriver(f"attempt {attempt} has let go of study {study_id} already; it is {study.state}")
            study = self._session.fenced(connection, study_id, attempt)
            target: StudyState = state
            if reason and study.state == "RUNNING" and study.reason:  # noted while it ran: it may be why
                reason = f"{reason}; {study.reason}"
            if state == "PAUSED" and study.state != "PAUSING":
                target = "CANCELLED" if study.state == "CANCELLING" else "PENDING"
            if state == "SUCCEEDED" and driver is not None and driver.fingerprint not in ("", study.fingerprint):
                more = "has trials to retry" if driver.fingerprint == RETRIED else "was extended"
                target, reason = _extended(study.state), f"it {more}, and goes on"
            elif state == "SUCCEEDED" and (left := trial_rows.unfinished(connection, study_id)):
                raise Conflict(
                    f"a study succeeds when all its trials are finished, got {left} that are not: {study_id}"
                )
            if state == "CANCELLED" and study.state != "CANCELLING":
                raise Conflict(f"only its owner cancels a study; nobody asked for it, it is {study.state}: {study_id}")
            self._session.update_driver(connection, study_id, released=True, expires_at=self._session.clock())
            self._settle(connection, study, target, reason)
            return target

    def lost(self, study_id: str, attempt: int, reason: str, *, counted: bool = True) -> int:
        """Note that a driver has died: its lease ends, its trials go back to WAITING.

        Args:
            study_id: Id of the study.
            attempt: The attempt that was seen to be dead; 0 for one that never came to acquire. An attempt that has let
                go or was replaced since is not counted.
            reason: How it was seen to be dead.
            counted: Whether it speaks against the study; not when the machine or the whole service went away.

        Returns:
            Drivers lost in a row without a finished trial in between.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            driver = self._session.driver(connection, study_id)
            now = self._session.clock()
            if driver is None:
                connection.execute(
                    sa.insert(DRIVERS).values(
                        study_id=study_id,
                        attempt=0,
                        holder="",
                        acquired_at=now,
                        expires_at=now,
                        released=True,
                        deaths=int(counted),
                    )
                )
                deaths = int(counted)
            elif attempt and (driver.attempt != attempt or driver.released):
                return int(driver.deaths)
            else:
                deaths = int(driver.deaths) + counted
                self._session.update_driver(connection, study_id, deaths=deaths, released=True, expires_at=now)
            ended_at = now if driver is None else min(now, driver.expires_at)
            trial_rows.stop(connection, study_id, "WAITING", now, ended_at=ended_at)
            self._session.event(
                connection, study_id, "log", {"level": "warning", "message": f"the driver was lost: {reason}"}
            )
            if study.state == "RUNNING":
                self._session.move(connection, study, "RUNNING", f"the driver was lost ({reason}); it is started again")
            return deaths

    def note(self, study_id: str, attempt: int, reason: str) -> None:
        """Say of a study that trains, while this attempt holds it, what its launcher sees; "" takes that back."""
        with self._session.write() as connection:
            study, driver = self._session.locked(connection, study_id), self._session.driver(connection, study_id)
            held = driver is not None and driver.attempt == attempt and holding(driver, self._session.clock())
            if held and study.state == "RUNNING":
                self._session.move(connection, study, "RUNNING", reason)

    def settle(self, study_id: str, state: StudyState, reason: str = "") -> None:
        """Put a study that no driver holds into a state: what the scheduler decides.

        Raises:
            Conflict: A driver holds it, or the move is not allowed.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            driver = self._session.driver(connection, study_id)
            if driver is not None and holding(driver, self._session.clock()):
                raise Conflict(
                    f"attempt {driver.attempt} holds study {study_id}; only it may say how the study goes on"
                )
            if driver is not None and not driver.released:
                self._session.update_driver(connection, study_id, released=True)
            self._settle(connection, study, state, reason)

    def driven(self) -> list[Driven]:
        """The unfinished studies that are not paused, oldest first, as one snapshot.

        A lease that would run for longer than any is given was written before the clock was set back: it is cut.
        """
        query = (
            sa.select(
                *STUDIES.c["id", "project", "name", "state", "reason"],
                *DRIVERS.c["attempt", "holder", "expires_at", "released", "deaths"],
            )
            .join(DRIVERS, DRIVERS.c.study_id == STUDIES.c.id, isouter=True)
            .where(STUDIES.c.state.in_(tuple(DRIVEN)))
            .order_by(STUDIES.c.id)
        )
        with self._session.read() as connection:
            rows = connection.execute(query).all()
        now = self._session.clock()
        longest = now + self._session.lease_seconds
        if any(row.attempt is not None and not row.released and row.expires_at > longest + _SLACK_S for row in rows):
            with self._session.write() as connection:
                cut = sa.update(DRIVERS).where(DRIVERS.c.expires_at > longest, DRIVERS.c.released.is_(False))
                connection.execute(cut.values(expires_at=longest))
        return [_driven(row, now) for row in rows]

    def _settle(self, connection: sa.Connection, study: sa.Row[Any], state: StudyState, reason: str) -> None:
        now = self._session.clock()
        if state == "CANCELLED":
            trial_rows.stop(connection, study.id, "CANCELLED", now, from_states=("WAITING", "RUNNING"))
        else:
            trial_rows.stop(connection, study.id, "WAITING", now)
        if state == "PAUSED" and study.state == "PAUSING":  # whoever wanted the pause said why
            reason = reason or study.reason
        self._session.move(connection, study, state, reason)

    def _state(self, connection: sa.Connection, study_id: str) -> StudyState:
        state: StudyState = connection.execute(sa.select(STUDIES.c.state).where(STUDIES.c.id == study_id)).scalar_one()
        return state


def desired(state: StudyState) -> Desired:
    """What the owner of a study in this state wants its driver to do."""
    return _DESIRED.get(state, "run")


def _extended(state: StudyState) -> StudyState:
    """Where a study goes that was extended, or had trials retried, while it was driven to its end without these."""
    ends: dict[StudyState, StudyState] = {"PAUSING": "PAUSED", "CANCELLING": "CANCELLED"}
    return ends.get(state, "PENDING")


def holding(driver: sa.Row[Any], now: float) -> bool:
    """Whether the driver of this row holds its study."""
    return not driver.released and driver.expires_at > now and not gone(driver.holder)


def _driven(row: sa.Row[Any], now: float) -> Driven:
    held = row.attempt is not None and holding(row, now)
    return Driven(
        id=row.id,
        project=row.project,
        name=row.name,
        state=row.state,
        reason=row.reason,
        attempt=row.attempt or 0,
        held=held,
        lost=row.attempt is not None and not row.released and not held,
        deaths=row.deaths or 0,
    )
