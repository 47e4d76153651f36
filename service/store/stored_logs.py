"""Drivers' logs, kept when the pod, the job or the machine is gone.

A study keeps its newest `LINES_KEPT` lines. Older ones are dropped in batches, and a note says how many.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa

from driftline.errors import StaleDriver
from driftline.wire.logs import LogLine, NewLines
from driftline.wire.records import STUDY_FINISHED
from service.store.schema import LOG_LINES, LOG_TOTALS
from service.store.session import Session, check_exists, moment, sent_by

LINES_KEPT = 20_000
LAST_WORDS_S = 600.0
"""For how long the last driver of a finished study may add to its log: as long as a driver waits for the API."""

_SLACK = 1000  # lines above the limit before old ones are dropped: one delete for many lines


class Logs:
    """The newest lines of drivers' logs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.lines_kept = LINES_KEPT

    def write(self, study_id: str, new: NewLines, *, nonce: str = "") -> int:
        """Add lines to a study's log; repeating the last batch adds nothing.

        Does not check the lease, so that a driver that lost it can still log why. The log of a finished study accepts
        lines of its last driver only, for `LAST_WORDS_S`.

        Returns:
            How many lines were added.

        Raises:
            StaleDriver: The study has finished, under another attempt or too long ago.
        """
        if not new.lines:
            return 0
        lines = [line.model_dump() for line in new.lines]
        mark = hashlib.sha256(json.dumps([new.attempt, lines]).encode()).hexdigest()
        totals = LOG_TOTALS.c
        with self._session.write() as connection:
            self._check_open(connection, self._session.locked(connection, study_id), new.attempt, nonce)
            old = connection.execute(sa.select(LOG_TOTALS).where(totals.study_id == study_id)).first()
            if old is not None and old.newest == mark:
                return 0
            rows = [{"study_id": study_id, "attempt": new.attempt, **line} for line in lines]
            connection.execute(sa.insert(LOG_LINES), rows)
            kept, dropped = len(lines) + (old.lines if old else 0), old.dropped if old else 0
            if kept > self.lines_kept + _SLACK:
                gone = self._drop_lines(connection, study_id)
                kept, dropped = kept - gone, dropped + gone
            values = {"lines": kept, "dropped": dropped, "newest": mark}
            if old is None:
                connection.execute(sa.insert(LOG_TOTALS).values(study_id=study_id, **values))
            else:
                connection.execute(sa.update(LOG_TOTALS).where(totals.study_id == study_id).values(**values))
        return len(lines)

    def read(self, study_id: str, *, after: int = 0, limit: int | None = None) -> list[LogLine]:
        """Lines in order, after a note if older lines were dropped.

        Args:
            study_id: Id of the study.
            after: Only lines with a greater id.
            limit: Maximum number of lines.
        """
        lines, totals = LOG_LINES.c, LOG_TOTALS.c
        query = sa.select(*lines["id", "attempt", "at", "level", "text"]).order_by(lines.id).limit(limit)
        with self._session.read() as connection:
            check_exists(connection, study_id)
            rows = connection.execute(query.where(lines.study_id == study_id, lines.id > after)).all()
            oldest = connection.execute(sa.select(sa.func.min(lines.id)).where(lines.study_id == study_id)).scalar()
            dropped = connection.execute(sa.select(totals.dropped).where(totals.study_id == study_id)).scalar()
        log_lines = [LogLine.model_validate({**row._mapping, "at": moment(row.at)}) for row in rows]
        if dropped and log_lines and log_lines[0].id == oldest and after < log_lines[0].id - 1:
            text = f"{dropped} older lines were dropped: a study keeps its newest {self.lines_kept}"
            first = log_lines[0]
            note = LogLine(id=first.id - 1, at=first.at, attempt=first.attempt, level="note", text=text)
            log_lines = [note, *log_lines][:limit]
        return log_lines

    def newest(self, study_id: str, *, before: int | None = None, limit: int) -> list[LogLine]:
        """The newest lines, newest first, without a note about dropped ones.

        Args:
            study_id: Id of the study.
            before: Only lines with a smaller id.
            limit: Maximum number of lines.
        """
        lines = LOG_LINES.c
        query = sa.select(*lines["id", "attempt", "at", "level", "text"]).where(lines.study_id == study_id)
        if before is not None:
            query = query.where(lines.id < before)
        with self._session.read() as connection:
            check_exists(connection, study_id)
            rows = connection.execute(query.order_by(lines.id.desc()).limit(limit))
            return [LogLine.model_validate({**row._mapping, "at": moment(row.at)}) for row in rows]

    def _check_open(self, connection: sa.Connection, study: sa.Row[Any], attempt: int, nonce: str) -> None:
        if study.state not in STUDY_FINISHED:
            return
        driver = self._session.driver(connection, study.id)
        late = self._session.clock() - study.finished_at > LAST_WORDS_S
        if driver is None or not sent_by(driver, attempt, nonce) or late:
            raise StaleDriver(f"study {study.id} is {study.state}: its log takes no more lines of attempt {attempt}")

    def _drop_lines(self, connection: sa.Connection, study_id: str) -> int:
        """Drop all but the newest `lines_kept` lines; returns the number dropped."""
        lines = LOG_LINES.c
        newest = sa.select(lines.id).where(lines.study_id == study_id).order_by(lines.id.desc())
        first = connection.execute(newest.offset(self.lines_kept - 1).limit(1)).scalar_one()
        return connection.execute(sa.delete(LOG_LINES).where(lines.study_id == study_id, lines.id < first)).rowcount
