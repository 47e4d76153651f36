"""Shared by the parts of the store: transactions, the clock, fencing, state changes, events, audit."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn

import sqlalchemy as sa

from driftline.errors import NotFound, StaleDriver
from driftline.wire.logs import storable
from driftline.wire.records import STUDY_FINISHED, StudyState
from service.store.database import Database
from service.store.schema import AUDIT, DRIVERS, EVENTS, STUDIES
from service.store.states import check_study
from trainers import shown

KEPT = STUDIES.c.deleted_at.is_(None)
"""Condition for studies that were not deleted; deleted ones are hidden."""

_INSERT_EVENT = sa.insert(EVENTS)
_INSERT_AUDIT = sa.insert(AUDIT)


class Actor(NamedTuple):
    """Who makes a request: the id and the name of a token."""

    id: str
    name: str


class Session:
    """A database with a clock, and the writes shared by several parts of the store.

    Methods that take a connection run inside the caller's transaction.

    Args:
        database: The database.
        clock: Returns Unix time in seconds.
        lease_seconds: How long a driver may be silent before another one may take over.
    """

    def __init__(
        self, database: Database, *, clock: Callable[[], float] = time.time, lease_seconds: float = 30.0
    ) -> None:
        self.database = database
        self.clock = clock
        self.lease_seconds = lease_seconds

    def read(self) -> AbstractContextManager[sa.Connection]:
        """A snapshot: all statements inside see the same state."""
        return self.database.read()

    def write(self) -> AbstractContextManager[sa.Connection]:
        """A transaction: stores everything inside, or nothing if an exception leaves the block."""
        return self.database.write()

    def locked(self, connection: sa.Connection, study_id: str) -> sa.Row[Any]:
        """The study's row, locked: other writes about this study wait until the transaction ends."""
        row = connection.execute(sa.select(STUDIES).where(STUDIES.c.id == study_id).with_for_update()).first()
        return missing(study_id) if row is None or row.deleted_at is not None else row

    def driver(self, connection: sa.Connection, study_id: str) -> sa.Row[Any] | None:
        """The row of the study's newest driver; None if it never had one."""
        return connection.execute(sa.select(DRIVERS).where(DRIVERS.c.study_id == study_id)).first()

    def fenced(self, connection: sa.Connection, study_id: str, attempt: int, nonce: str) -> sa.Row[Any]:
        """The study's row, locked, for a write by the driver that holds the study; renews its lease.

        Raises:
            StaleDriver: The attempt was replaced, released or never given, or is another driver's, because a restored
                backup gave out its number again.
        """
        study = self.locked(connection, study_id)
        driver = self.driver(connection, study_id)
        if driver is None or driver.attempt != attempt or driver.released:
            newest = (
                "no driver holds the study" if driver is None or driver.released else f"attempt {driver.attempt} does"
            )
            raise StaleDriver(f"attempt {attempt} no longer holds study {study_id}: {newest}; stop this driver")
        if not sent_by(driver, attempt, nonce):
            raise StaleDriver(
                f"attempt {attempt} of study {study_id} is another driver's: a backup was restored; stop this driver"
            )
        self.update_driver(connection, study_id, expires_at=self.clock() + self.lease_seconds)
        return study

    def update_driver(self, connection: sa.Connection, study_id: str, **values: Any) -> None:
        """Update the row of the study's newest driver."""
        connection.execute(sa.update(DRIVERS).where(DRIVERS.c.study_id == study_id).values(**values))

    def move(self, connection: sa.Connection, study: sa.Row[Any], state: StudyState, reason: str = "") -> None:
        """Move the study to a state, with an event; does nothing if state and reason stay the same."""
        reason = storable(reason)  # may quote a log or another system
        if study.state == state and study.reason == reason:
            return
        if study.state != state:
            check_study(study.id, study.state, state)
        now = self.clock()
        values: dict[str, Any] = {"state": state, "reason": reason, "updated_at": now}
        if study.state != state:
            values["finished_at"] = now if state in STUDY_FINISHED else None
        connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study.id).values(**values))
        self.event(connection, study.id, "state", {"state": state, "reason": reason})

    def changed(self, connection: sa.Connection, study: sa.Row[Any]) -> int:
        """Increase the study's version, and replace its progress event.

        Readers of the event are given the progress as it is when they read (`stored_events`): counting the trials of a
        large study at every change took most of the time of the writes.
        """
        version = int(study.version) + 1
        connection.execute(
            sa.update(STUDIES).where(STUDIES.c.id == study.id).values(version=version, updated_at=self.clock())
        )
        connection.execute(sa.delete(EVENTS).where(EVENTS.c.study_id == study.id, EVENTS.c.kind == "progress"))
        self.event(connection, study.id, "progress", {"version": version})
        return version

    def event(self, connection: sa.Connection, study_id: str, kind: str, data: dict[str, Any]) -> None:
        """Add an event to the study's history."""
        row = {"study_id": study_id, "kind": kind, "data": data, "created_at": self.clock()}
        connection.execute(_INSERT_EVENT, row)

    def audit(
        self,
        connection: sa.Connection,
        actor: Actor | None,
        action: str,
        target: str,
        project: str,
        details: Mapping[str, Any],
    ) -> None:
        """Add an event to the audit trail, in the transaction that it describes."""
        row = {
            "at": self.clock(),
            "project": project,
            "actor": "" if actor is None else actor.id,
            "actor_name": "" if actor is None else actor.name,
            "action": action,
            "target": target,
            "details": dict(details),
        }
        connection.execute(_INSERT_AUDIT, row)


def sent_by(driver: sa.Row[Any], attempt: int, nonce: str) -> bool:
    """Whether a request comes from the driver of this row; drivers of 0.2 and before send no nonce."""
    return bool(driver.attempt == attempt and driver.nonce in ("", nonce))


class StorePart:
    """A part of the store. All parts work in the same session."""

    def __init__(self, session: Session) -> None:
        self._session = session


def moment(seconds: float | None) -> datetime | None:
    """The UTC time of a stored number of seconds."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def missing(study_id: str) -> NoReturn:
    """Raise the error for an unknown study.

    Raises:
        NotFound: Always.
    """
    raise NotFound(f"no study {shown(study_id)}; list the studies to see their ids")


def check_exists(connection: sa.Connection, study_id: str) -> None:
    """Check that the study exists."""
    if connection.execute(sa.select(STUDIES.c.id).where(STUDIES.c.id == study_id, KEPT)).first() is None:
        missing(study_id)
