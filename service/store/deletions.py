"""Deleted studies: hidden at once, then removed in small steps.

A request hides the study in one short transaction. Then its rows are deleted a thousand at a time, so that no other
writer waits long. The scheduler removes checkpoints and logs, the recorder removes runs in MLflow; a row of `deletions`
lists what remains of these, and is deleted last. Each step may be repeated, and continues an interrupted one.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from driftline.errors import Conflict, NotFound
from driftline.wire.access import Quota
from service.store.leases import holding
from service.store.quotas import gpu_seconds
from service.store.schema import (
    CURVE_SEGMENTS,
    DELETIONS,
    EVENTS,
    IDEMPOTENCY_KEYS,
    LOG_LINES,
    PACKS,
    PAST_USE,
    QUOTAS,
    RECORDER_STATE,
    STUDIES,
    TRIALS,
)
from service.store.session import KEPT, Actor, StorePart
from service.store.states import check_deletable

ROWS = 1000
"""Maximum number of rows that one transaction deletes."""

_DAY_S = 24 * 3600.0

Part = Literal["files", "mlflow"]
"""Parts of a study outside the database: checkpoints and logs, or its runs in MLflow."""


class Deletion(NamedTuple):
    """A deleted study of which a part outside the database remains.

    Attributes:
        study_id: Id of the study; ids are never reused.
        name: Name of the study.
    """

    study_id: str
    name: str


class Deletions(StorePart):
    """Deletes studies."""

    def request(self, study_id: str, *, actor: Actor | None = None) -> None:
        """Hide a study from everybody; all that belongs to it is removed afterwards.

        Args:
            study_id: Id of the study.
            actor: Holder of the request's token, for the audit trail.

        Raises:
            NotFound: No such study, or it was deleted already.
            Conflict: The study runs or waits to run, or a driver holds it; nothing is changed.
        """
        with self._session.write() as connection:
            study = self._session.locked(connection, study_id)
            check_deletable(study_id, study.state)
            if self._held(connection, study_id):
                raise Conflict(f"a driver holds study {study_id}: try again when it has stopped", state=study.state)
            self._hide(connection, study)
            details = {"name": study.name, "was": study.state}
            self._session.audit(connection, actor, "study.delete", study_id, study.project, details)

    def expire(self, defaults: Quota, limit: int) -> list[str]:
        """Delete studies that finished longer ago than their projects keep studies, in the order of their ends.

        Args:
            defaults: Limits of projects without their own.
            limit: Maximum number of studies.

        Returns:
            Ids of the deleted studies.
        """
        now = self._session.clock()
        common = sa.literal(defaults.retention_days, sa.Double)
        days = sa.case((QUOTAS.c.project.is_not(None), QUOTAS.c.retention_days), else_=common)
        query = (
            sa.select(STUDIES.c.id, STUDIES.c.finished_at, days.label("days"))
            .join(QUOTAS, QUOTAS.c.project == STUDIES.c.project, isouter=True)
            .where(STUDIES.c.finished_at < now - days * _DAY_S, KEPT)
            .order_by(STUDIES.c.finished_at)
            .limit(limit)
        )
        with self._session.read() as connection:
            rows = connection.execute(query).all()
        return [row.id for row in rows if self._expire(row.id, row.finished_at, row.days)]

    def _expire(self, study_id: str, finished_at: float, days: float) -> bool:
        """Delete a study unless it was resumed since `finished_at`."""
        with self._session.write() as connection:
            try:
                study = self._session.locked(connection, study_id)
            except NotFound:
                return False
            if study.finished_at != finished_at or self._held(connection, study_id):
                return False
            self._hide(connection, study)
            details = {"name": study.name, "was": study.state, "retention_days": days}
            self._session.audit(connection, None, "study.expire", study_id, study.project, details)
            return True

    def purge(self, rows: int = ROWS) -> bool:
        """Delete some rows of hidden studies, in the order in which the studies were hidden.

        Args:
            rows: Maximum number of rows.

        Returns:
            Whether there are more.
        """
        oldest = sa.select(STUDIES.c.id).where(STUDIES.c.deleted_at.is_not(None)).order_by(STUDIES.c.deleted_at)
        with self._session.read() as connection:
            study_id = connection.execute(oldest.limit(1)).scalar()
        if study_id is None:
            return False
        with self._session.write() as connection:
            left = rows
            for table, keys in _LARGE_TABLES:
                left -= _delete_some(connection, table, keys, study_id, left)
                if left <= 0:
                    return True
            connection.execute(sa.delete(STUDIES).where(STUDIES.c.id == study_id))  # the other tables' rows cascade
            return connection.execute(oldest.limit(1)).first() is not None

    def pending(self, part: Part, limit: int, after: str = "") -> list[Deletion]:
        """At most `limit` deleted studies of which this part remains, in the order of their ids, after this id."""
        columns = DELETIONS.c
        query = sa.select(*columns["study_id", "name"]).where(columns[part], columns.study_id > after)
        query = query.order_by(columns.study_id).limit(limit)
        with self._session.read() as connection:
            return [Deletion(*row) for row in connection.execute(query)]

    def done(self, study_id: str, part: Part) -> None:
        """Record that this part of a deleted study was removed; may be repeated."""
        condition = DELETIONS.c.study_id == study_id
        with self._session.write() as connection:
            connection.execute(sa.update(DELETIONS).where(condition).values({part: False}))
            over = sa.and_(condition, DELETIONS.c.files.is_(False), DELETIONS.c.mlflow.is_(False))
            connection.execute(sa.delete(DELETIONS).where(over))

    def _held(self, connection: sa.Connection, study_id: str) -> bool:
        """Whether a driver holds the study."""
        driver = self._session.driver(connection, study_id)
        return driver is not None and holding(driver, self._session.clock())

    def _hide(self, connection: sa.Connection, study: sa.Row[Any]) -> None:
        now = self._session.clock()
        recorded = sa.select(RECORDER_STATE.c.study_id).where(RECORDER_STATE.c.study_id == study.id).limit(1)
        self._keep_use(connection, study)
        connection.execute(sa.update(STUDIES).where(STUDIES.c.id == study.id).values(deleted_at=now))
        connection.execute(sa.delete(IDEMPOTENCY_KEYS).where(IDEMPOTENCY_KEYS.c.study_id == study.id))
        connection.execute(
            sa.insert(DELETIONS).values(
                study_id=study.id,
                project=study.project,
                name=study.name,
                deleted_at=now,
                files=True,
                mlflow=connection.execute(recorded).first() is not None,
            )
        )

    def _keep_use(self, connection: sa.Connection, study: sa.Row[Any]) -> None:
        """Add the study's GPU-seconds to those of its project's deleted studies."""
        query = gpu_seconds(self._session.clock()).where(PACKS.c.study_id == study.id)
        seconds = float(connection.execute(query).scalar_one())
        if seconds <= 0:
            return
        self._session.database.turn(connection, f"quota/{study.project}")
        condition = PAST_USE.c.project == study.project
        more = sa.update(PAST_USE).where(condition).values(gpu_seconds=PAST_USE.c.gpu_seconds + seconds)
        if not connection.execute(more).rowcount:
            connection.execute(sa.insert(PAST_USE).values(project=study.project, gpu_seconds=seconds))


# Referring tables first; rows of small tables are deleted with the study's own row.
_LARGE_TABLES: tuple[tuple[sa.Table, Sequence[str]], ...] = (
    (CURVE_SEGMENTS, ("trial_id", "segment")),
    (TRIALS, ("id",)),
    (LOG_LINES, ("id",)),
    (EVENTS, ("id",)),
    (PACKS, ("study_id", "pack")),
    (RECORDER_STATE, ("study_id", "kind", "key")),
)


def _delete_some(connection: sa.Connection, table: sa.Table, keys: Sequence[str], study_id: str, limit: int) -> int:
    """Delete at most `limit` of a study's rows; returns the number deleted."""
    columns = [table.c[key] for key in keys]
    selected = sa.select(*columns).limit(limit)
    if table is CURVE_SEGMENTS:
        selected = selected.join(TRIALS, TRIALS.c.id == table.c.trial_id).where(TRIALS.c.study_id == study_id)
    else:
        selected = selected.where(table.c.study_id == study_id)
    return connection.execute(sa.delete(table).where(sa.tuple_(*columns).in_(selected))).rowcount
