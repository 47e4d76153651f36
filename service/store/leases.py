"""Drivers' leases on studies, with attempts as fencing tokens, and what the scheduler reads and decides."""

from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa

from driftline.errors import Conflict, StaleDriver
from driftline.wire.driver_messages import Desired, Lease, Released
from driftline.wire.logs import storable
from driftline.wire.records import StudyState
from service.store import trial_rows
from service.store.local_processes import gone
from service.store.schema import DRIVERS, STUDIES
from service.store.session import StorePart, sent_by
from service.store.states import DRIVEN

_DESIRED: dict[StudyState, Desired] = {
    "PAUSING": "pause",
    "PAUSED": "pause",
    "CANCELLING": "cancel",
    "CANCELLED": "cancel",
}

RETRIED = "retried"
"""Replaces the fingerprint in a driver's row after a retry: its trials run under the next driver."""

_SLACK_S = 60.0
"""Tolerated difference between the clocks of two machines."""


@dataclass(frozen=True)
class Driven:
    """An unfinished study as the scheduler sees it.

    Attributes:
        id: The study's id; ids sort by time of creation.
        project: The study's project.
        name: The study's name.
        state: PENDING, QUEUED, RUNNING, PAUSING or CANCELLING.
        reason: Why it is in this state.
        attempt: Attempt of its newest driver; 0 if it never had one.
        held: Whether that driver holds the study: not released, lease not expired, not known to be dead.
        lost: Whether that driver neither holds the study nor has released it.
        deaths: Drivers lost in a row without a finished trial or a checkpoint of new rounds in between.
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


class Leases(StorePart):
    """The leases: which driver holds which study, and until when."""

    def acquire(self, study_id: str, holder: str, nonce: str = "") -> Lease:
        """Give the study to a driver under the next attempt; running trials go back to WAITING and keep their curves.

        Args:
            study_id: Id of the study.
            holder: The driver, as ``host/pid``. The present holder may acquire again and gets the next attempt.
            nonce: Random text that this driver alone sends with all its requests; "" if it sends none.

        Raises:
            Conflict: Another driver holds the study, or the study's state needs no driver.
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
                    nonce=nonce,
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

    def heartbeat(self, study_id: str, attempt: int, nonce: str = "") -> Desired:
        """Renew the lease; returns what the study's owner wants."""
        with self._session.write() as connection:
            return desired(self._session.fenced(connection, study_id, attempt, nonce).state)

    def release(self, study_id: str, attempt: int, state: Released, reason: str = "", *, nonce: str = "") -> StudyState:
        """Release the study. Idempotent.

        A driver may pause although the owner did not ask for it, because its machine goes away: the study becomes
        PENDING and is started again. It also becomes PENDING if the driver has finished the study as it was at
        `acquire`, but the owner has since extended it or retried FAILED trials.

        Returns:
            The study's state afterwards.

        Raises:
            Conflict: SUCCEEDED with unfinished trials, or CANCELLED although the owner did not cancel.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            driver = self._session.driver(connection, study_id)
            if driver is not None and driver.released and sent_by(driver, attempt, nonce):
                waits = study.state in ("PENDING", "QUEUED") and state in ("PAUSED", "SUCCEEDED")
                if study.state == state or waits or (state == "PAUSED" and study.state == "CANCELLED"):
                    return cast(StudyState, study.state)
                raise StaleDriver(f"attempt {attempt} has already released study {study_id}, which is {study.state}")
            study = self._session.fenced(connection, study_id, attempt, nonce)
            target: StudyState = state
            if reason and study.state == "RUNNING" and study.reason:  # noted while it ran: may be the cause
                reason = f"{reason}; {study.reason}"
            if state == "PAUSED" and study.state != "PAUSING":
                target = "CANCELLED" if study.state == "CANCELLING" else "PENDING"
            if state == "SUCCEEDED" and driver is not None and driver.fingerprint not in ("", study.fingerprint):
                more = "has trials to retry" if driver.fingerprint == RETRIED else "was extended"
                target, reason = _extended(study.state), f"it {more}, and continues"
            elif state == "SUCCEEDED" and (left := trial_rows.unfinished(connection, study_id)):
                raise Conflict(f"a study succeeds when all its trials are finished, got {left} unfinished: {study_id}")
            if state == "CANCELLED" and study.state != "CANCELLING":
                raise Conflict(f"only its owner cancels a study, but it is {study.state}: {study_id}")
            self._session.update_driver(connection, study_id, released=True, expires_at=self._session.clock())
            self._settle(connection, study, target, reason)
            return target

    def lost(self, study_id: str, attempt: int, reason: str, *, counted: bool = True, early: bool = False) -> int:
        """Record that a driver has died: its lease ends, its trials go back to WAITING.

        Args:
            study_id: Id of the study.
            attempt: The attempt of the dead driver. One that was released or replaced in the meantime is not counted.
            reason: How the death was noticed.
            counted: Whether the death counts against the study; false if the machine or the whole service failed.
            early: Whether the driver died before `acquire`; `attempt` is then the newest one before it, 0 if there is
                none.

        Returns:
            Drivers lost in a row without a finished trial or a checkpoint of new rounds in between.
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
            elif driver.attempt != attempt or (driver.released and not early):
                return int(driver.deaths)
            else:
                deaths = int(driver.deaths) + counted
                self._session.update_driver(connection, study_id, deaths=deaths, released=True, expires_at=now)
            ended_at = now if driver is None else min(now, driver.expires_at)
            trial_rows.stop(connection, study_id, "WAITING", now, ended_at=ended_at)
            self._session.event(
                connection, study_id, "log", {"level": "warning", "message": storable(f"the driver was lost: {reason}")}
            )
            if study.state == "RUNNING":
                self._session.move(connection, study, "RUNNING", f"the driver was lost ({reason}); it is started again")
            return deaths

    def note(self, study_id: str, attempt: int, reason: str) -> None:
        """Set the reason of a RUNNING study that this attempt holds to what its launcher sees; "" clears it."""
        with self._session.write() as connection:
            study, driver = self._session.locked(connection, study_id), self._session.driver(connection, study_id)
            held = driver is not None and driver.attempt == attempt and holding(driver, self._session.clock())
            if held and study.state == "RUNNING":
                self._session.move(connection, study, "RUNNING", reason)

    def settle(self, study_id: str, state: StudyState, reason: str = "") -> None:
        """Put a study that no driver holds into the state that the scheduler decided on.

        Raises:
            Conflict: A driver holds it, or the move is not allowed.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            driver = self._session.driver(connection, study_id)
            if driver is not None and holding(driver, self._session.clock()):
                raise Conflict(
                    f"attempt {driver.attempt} holds study {study_id}; only that driver may change its state"
                )
            if driver is not None and not driver.released:
                self._session.update_driver(connection, study_id, released=True)
            self._settle(connection, study, state, reason)

    def driven(self) -> list[Driven]:
        """A snapshot of the unfinished studies that are not paused, oldest first.

        Shortens leases that end later than any new lease would: they were written before the clock was set back.
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
        if state == "PAUSED" and study.state == "PAUSING":  # keep the reason that was given for the pause
            reason = reason or study.reason
        self._session.move(connection, study, state, reason)


def desired(state: StudyState) -> Desired:
    """What the owner of a study in this state wants its driver to do."""
    return _DESIRED.get(state, "run")


def _extended(state: StudyState) -> StudyState:
    """Next state of a study that was extended or had trials retried while a driver finished it without these."""
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
