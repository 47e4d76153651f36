"""Events: the history of a study, as its followers see it."""

from typing import Any, NamedTuple

import sqlalchemy as sa

from driftline.wire.records import Event, StudyState
from service.store import progress
from service.store.schema import EVENTS, STUDIES
from service.store.session import KEPT, StorePart, check_exists, missing, moment


class Tail(NamedTuple):
    """A study's events after a position, for an event stream.

    Attributes:
        state: The study's state after these events.
        newest: Id of the study's newest event.
        events: The events after the position.
    """

    state: StudyState
    newest: int
    events: list[Event]


class Events(StorePart):
    """The events of studies: state changes, progress and log lines; `Session.event` adds them."""

    def read(self, study_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """The study's events in order.

        Args:
            study_id: Id of the study.
            after: Only events with a greater id.
            limit: Maximum number of events.
        """
        with self._session.read() as connection:
            check_exists(connection, study_id)
            return _events(connection, study_id, after, limit)

    def newest(self, study_id: str, *, before: int | None = None, limit: int) -> list[Event]:
        """The study's newest changes of state and log lines, newest first.

        Args:
            study_id: Id of the study.
            before: Only events with a smaller id.
            limit: Maximum number of events.
        """
        query = sa.select(EVENTS).where(EVENTS.c.study_id == study_id, EVENTS.c.kind != "progress")
        if before is not None:
            query = query.where(EVENTS.c.id < before)
        with self._session.read() as connection:
            check_exists(connection, study_id)
            rows = connection.execute(query.order_by(EVENTS.c.id.desc()).limit(limit))
            return [_event(row) for row in rows]

    def tail(self, study_id: str, *, after: int, limit: int) -> Tail:
        """A snapshot of the study's state and its events after a position; cheap if there are none.

        Args:
            study_id: Id of the study.
            after: Only events with a greater id.
            limit: Maximum number of events.
        """
        newest = sa.select(sa.func.max(EVENTS.c.id)).where(EVENTS.c.study_id == study_id).scalar_subquery()
        query = sa.select(STUDIES.c.state, newest.label("newest")).where(STUDIES.c.id == study_id, KEPT)
        with self._session.read() as connection:
            row = connection.execute(query).first() or missing(study_id)
            last = row.newest or 0
            return Tail(row.state, last, _events(connection, study_id, after, limit) if last > after else [])

    def log(self, study_id: str, level: str, message: str) -> None:
        """Add a line to the study's history."""
        with self._session.write() as connection:
            self._session.locked(connection, study_id)
            self._session.event(connection, study_id, "log", {"level": level, "message": message})


def _events(connection: sa.Connection, study_id: str, after: int, limit: int | None) -> list[Event]:
    query = sa.select(EVENTS).where(EVENTS.c.study_id == study_id, EVENTS.c.id > after).order_by(EVENTS.c.id)
    events = [_event(row) for row in connection.execute(query.limit(limit))]
    return [_with_progress(connection, event) if event.kind == "progress" else event for event in events]


def _event(row: sa.Row[Any]) -> Event:
    return Event.model_validate({**row._mapping, "created_at": moment(row.created_at)})


def _with_progress(connection: sa.Connection, event: Event) -> Event:
    """A progress event with what it tells: the study's whole progress, as it is now."""
    study = event.study_id
    spec = connection.execute(sa.select(STUDIES.c.spec).where(STUDIES.c.id == study)).scalar_one()
    labels = progress.of(connection, {study: spec})[study]
    shown = {label: record.model_dump(mode="json") for label, record in labels.items()}
    return event.model_copy(update={"data": event.data | {"progress": shown}})
