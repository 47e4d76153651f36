"""Idempotency keys: repeating a request with its key returns the study that the first one made."""

import sqlalchemy as sa

from driftline.errors import InvalidSpec
from service.store.schema import IDEMPOTENCY_KEYS
from service.store.session import Session
from trainers import shown

_KEYS_KEPT_S = 7 * 24 * 3600.0
_FORGET_EVERY_S = 3600.0
_INSERT = sa.insert(IDEMPOTENCY_KEYS)


class IdempotencyKeys:
    """Keeps for seven days which study was made under which key."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forgot_at = float("-inf")  # when this process last deleted the expired keys

    def used(self, connection: sa.Connection, project: str, key: str | None, request_hash: str) -> str | None:
        """Id of the study that was made under the key; None if there is none, or no key."""
        if key is None:
            return None
        keys = IDEMPOTENCY_KEYS
        self._session.database.turn(connection, f"{project}/{key}")  # there may be no row to lock yet
        this = sa.and_(keys.c.project == project, keys.c.key == key)
        row = connection.execute(sa.select(keys).where(this)).first()
        if row is None:
            return None
        if row.created_at < self._session.clock() - _KEYS_KEPT_S:
            connection.execute(sa.delete(keys).where(this))
            return None
        if row.request_hash != request_hash:
            problem = f"a key stands for one request, but {shown(key)} was used for another one; use a new key"
            raise InvalidSpec("Idempotency-Key", problem)
        return str(row.study_id)

    def add(
        self, connection: sa.Connection, project: str, key: str | None, request_hash: str, study_id: str, now: float
    ) -> None:
        """Store which study was made under the key; does nothing without one."""
        if key is None:
            return
        names = {"project": project, "key": key, "request_hash": request_hash, "study_id": study_id}
        connection.execute(_INSERT, {**names, "created_at": now})

    def forget_expired(self, now: float) -> None:
        """Delete expired keys, at most once an hour; in its own transaction, because it scans all keys."""
        if abs(now - self._forgot_at) < _FORGET_EVERY_S:
            return
        self._forgot_at = now
        keys = IDEMPOTENCY_KEYS
        expired = sa.select(keys.c.project, keys.c.key).where(keys.c.created_at < now - _KEYS_KEPT_S)
        if not self._session.database.sqlite:  # skip keys that another transaction uses or deletes
            expired = expired.with_for_update(skip_locked=True)
        with self._session.write() as connection:
            connection.execute(sa.delete(keys).where(sa.tuple_(keys.c.project, keys.c.key).in_(expired)))
