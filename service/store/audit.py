"""The audit trail: who did what, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from driftline.wire.access import AuditEvent
from driftline.wire.records import StudyRecord
from service.store.schema import AUDIT
from service.store.session import StorePart, moment

FAILURES_KEPT_S = 90 * 24 * 3600.0
"""Failed authentications are deleted after this time; all other audit events are kept."""

_SUBMITTED_WITHIN_S = 60.0  # between a study's time of creation and its audit event, written in one transaction


class AuditTrail(StorePart):
    """The audit trail; other parts add to it with `Session.audit`."""

    def add(self, action: str, target: str = "", *, details: dict[str, Any] | None = None) -> None:
        """Add an event that no account caused, in a transaction of its own; see `AuditEvent`."""
        with self._session.write() as connection:
            self._session.audit(connection, None, action, target, "", details or {})
            if action == "auth.failed":
                old = sa.and_(AUDIT.c.action == action, AUDIT.c.at < self._session.clock() - FAILURES_KEPT_S)
                connection.execute(sa.delete(AUDIT).where(old))

    def find(
        self,
        *,
        project: str | None = None,
        action: str | None = None,
        target: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[AuditEvent]:
        """The audit trail, newest first.

        Args:
            project: Only events about this project.
            action: Only events with this action.
            target: Only events about the study, token or project of this id; give its project too, which has an index.
            before: Only events with a smaller id.
            limit: Maximum number of events.
        """
        query = sa.select(AUDIT).order_by(AUDIT.c.id.desc()).limit(limit)
        for column, value in (
            (AUDIT.c.project, project),
            (AUDIT.c.action, action),
            (AUDIT.c.target, target),
        ):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(AUDIT.c.id < before)
        with self._session.read() as connection:
            rows = connection.execute(query).all()
        return [AuditEvent.model_validate({**row._mapping, "at": moment(row.at)}) for row in rows]

    def owners(self, studies: Sequence[StudyRecord]) -> dict[str, str]:
        """Study id -> name of the token that submitted the study; without studies whose submission has no name."""
        if not studies:
            return {}
        times = [study.created_at.timestamp() for study in studies]
        query = sa.select(*AUDIT.c["target", "actor_name"]).where(
            AUDIT.c.action == "study.submit",
            AUDIT.c.at.between(min(times) - _SUBMITTED_WITHIN_S, max(times) + _SUBMITTED_WITHIN_S),  # uses the index
            AUDIT.c.target.in_([study.id for study in studies]),
        )
        with self._session.read() as connection:
            return {row.target: row.actor_name for row in connection.execute(query) if row.actor_name}
