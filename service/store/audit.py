"""The audit trail: who did what, and when."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from driftline.wire.access import AuditEvent
from service.store.schema import AUDIT
from service.store.session import Actor, Session, moment

FAILURES_KEPT_S = 90 * 24 * 3600.0
"""Failed authentications are deleted after this time; all other audit events are kept."""


class AuditTrail:
    """The audit trail; other parts add to it with `Session.audit`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self,
        action: str,
        target: str = "",
        *,
        actor: Actor | None = None,
        project: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        """Add an event to the audit trail in a transaction of its own; see `AuditEvent`."""
        with self._session.write() as connection:
            self._session.audit(connection, actor, action, target, project, details or {})
            if action == "auth.failed":
                old = sa.and_(AUDIT.c.action == action, AUDIT.c.at < self._session.clock() - FAILURES_KEPT_S)
                connection.execute(sa.delete(AUDIT).where(old))

    def find(
        self,
        *,
        project: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[AuditEvent]:
        """The audit trail, newest first.

        Args:
            project: Only events about this project.
            action: Only events with this action.
            before: Only events with a smaller id.
            limit: Maximum number of events.
        """
        query = sa.select(AUDIT).order_by(AUDIT.c.id.desc()).limit(limit)
        for column, value in ((AUDIT.c.project, project), (AUDIT.c.action, action)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(AUDIT.c.id < before)
        with self._session.read() as connection:
            rows = connection.execute(query).all()
        return [AuditEvent.model_validate({**row._mapping, "at": moment(row.at)}) for row in rows]
