"""Events, what MLflow has, locks between processes, and facts about the database itself."""

from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from driftline.wire.records import Event, StudyState
from service.store.core import moment
from service.store.local_processes import gone
from service.store.retries import Retries
from service.store.schema import EVENTS, LOCKS, META, RECORDER_STATE, STUDIES


@dataclass(frozen=True)
class Recorded:
    """What the recorder has written about one thing.

    Attributes:
        kind: What sort of thing: "study", "label", "trial" or the recorder's own word.
        key: Which one: a label, a trial's id.
        run_id: The run that shows it.
        version: The study's version that it shows; of a trial, the attempt under which it ended, and 0 until then.
        rounds: Rounds that have been written.
    """

    kind: str
    key: str
    run_id: str
    version: int = 0
    rounds: int = 0


class Tail(NamedTuple):
    """What a stream of events needs to know.

    Attributes:
        state: The study's state after these events.
        newest: Id of the study's newest event.
        events: Those after a position.
    """

    state: StudyState
    newest: int
    events: list[Event]


class Records(Retries):
    """The part of `Store` that keeps events, the recorder's state, locks and facts."""

    def events(self, study_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """The study's events in their order.

        Args:
            study_id: Id of the study.
            after: Only those with a greater id.
            limit: At most so many.

        Raises:
            NotFound: No such study.
        """
        with self._database.read() as connection:
            self._exists(connection, study_id)
            return _events(connection, study_id, after, limit)

    def tail(self, study_id: str, *, after: int, limit: int) -> Tail:
        """The study's state with its newest events, of one moment; cheap when there are none.

        Args:
            study_id: Id of the study.
            after: Only those with a greater id.
            limit: At most so many.

        Raises:
            NotFound: No such study.
        """
        newest = sa.select(sa.func.max(EVENTS.c.id)).where(EVENTS.c.study_id == study_id).scalar_subquery()
        query = sa.select(STUDIES.c.state, newest.label("newest")).where(STUDIES.c.id == study_id)
        with self._database.read() as connection:
            row = connection.execute(query).first() or self._missing(study_id)
            last = row.newest or 0
            return Tail(row.state, last, _events(connection, study_id, after, limit) if last > after else [])

    def log(self, study_id: str, level: str, message: str) -> None:
        """Add a line to the study's history."""
        with self._database.write() as connection:
            self._locked(connection, study_id)
            self._event(connection, study_id, "log", {"level": level, "message": message})

    def recorded(self, study_id: str, kind: str | None = None) -> list[Recorded]:
        """What the recorder has written about a study, by kind and key."""
        columns = RECORDER_STATE.c
        query = sa.select(*columns["kind", "key", "run_id", "version", "rounds"]).where(columns.study_id == study_id)
        if kind is not None:
            query = query.where(columns.kind == kind)
        with self._database.read() as connection:
            return [Recorded(**row._mapping) for row in connection.execute(query.order_by(columns.kind, columns.key))]

    def record(self, study_id: str, *entries: Recorded) -> None:
        """Note what the recorder has written, in place of what was noted under the same kind and key; all or nothing.

        Raises:
            NotFound: No such study.
        """
        table = RECORDER_STATE
        with self._database.write() as connection:
            self._locked(connection, study_id)
            for entry in entries:
                here = (table.c.study_id == study_id, table.c.kind == entry.kind, table.c.key == entry.key)
                connection.execute(sa.delete(table).where(*here))
                connection.execute(
                    sa.insert(table).values(
                        study_id=study_id,
                        kind=entry.kind,
                        key=entry.key,
                        run_id=entry.run_id,
                        version=entry.version,
                        rounds=entry.rounds,
                        updated_at=self.clock(),
                    )
                )

    def lock(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lock between processes.

        Args:
            name: What is locked: "scheduler", "recorder".
            holder: Who asks: ``host/pid``, with more after another slash.
            seconds: After this long without renewal another one may take it; at once from a process of this machine
                that is no more.

        Returns:
            Whether the holder has it now.
        """
        now = self.clock()
        with self._database.write() as connection:
            if not self._database.sqlite:  # two first comers take their turn
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"lock/{name}"))))
            row = connection.execute(sa.select(LOCKS).where(LOCKS.c.name == name)).first()
            if row is not None and row.holder != holder and row.expires_at > now and not gone(row.holder):
                if row.expires_at > now + seconds:  # the clock was set back since: not locked for longer than was meant
                    shorter = sa.update(LOCKS).where(LOCKS.c.name == name).values(expires_at=now + seconds)
                    connection.execute(shorter)
                return False
            connection.execute(sa.delete(LOCKS).where(LOCKS.c.name == name))
            connection.execute(sa.insert(LOCKS).values(name=name, holder=holder, expires_at=now + seconds))
            return True

    def unlock(self, name: str, holder: str) -> None:
        """Let go of a lock; nothing happens when somebody else has it."""
        with self._database.write() as connection:
            connection.execute(sa.delete(LOCKS).where(LOCKS.c.name == name, LOCKS.c.holder == holder))

    def fact(self, key: str) -> str | None:
        """A fact about this database, such as the fingerprint of the study it is for; None when it was never set."""
        with self._database.read() as connection:
            found: str | None = connection.execute(sa.select(META.c.value).where(META.c.key == key)).scalar()
            return found

    def set_fact(self, key: str, value: str) -> str:
        """Set a fact that was never set.

        Returns:
            The fact as it stands: the given value, or the one that was there before.
        """
        with self._database.write() as connection:
            if not self._database.sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"meta/{key}"))))
            found: str | None = connection.execute(sa.select(META.c.value).where(META.c.key == key)).scalar()
            if found is None:
                connection.execute(sa.insert(META).values(key=key, value=value))
            return value if found is None else found

    def ready(self) -> None:
        """Ask the database for an answer, and write to it where the last write failed.

        Raises:
            Unavailable: It gives none, or still cannot be written to.
        """
        with self._database.read() as connection:
            connection.execute(sa.select(sa.literal(1)))
        if self._database.writes_fail:
            self.lock("readiness", "probe", 1.0)


def _events(connection: sa.Connection, study_id: str, after: int, limit: int | None) -> list[Event]:
    query = sa.select(EVENTS).where(EVENTS.c.study_id == study_id, EVENTS.c.id > after).order_by(EVENTS.c.id)
    rows = connection.execute(query.limit(limit))
    return [Event.model_validate({**row._mapping, "created_at": moment(row.created_at)}) for row in rows]
