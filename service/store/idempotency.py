"""Idempotency keys: a request that is sent again under its key gives the study that the first one made."""

import sqlalchemy as sa

from driftline.errors import InvalidSpec
from service.store.quotas import Quotas
from service.store.schema import IDEMPOTENCY_KEYS
from trainers import shown

_KEYS_KEPT_S = 7 * 24 * 3600.0
_FORGET_EVERY_S = 3600.0
_INSERT = sa.insert(IDEMPOTENCY_KEYS)


class Keys(Quotas):
    """The part of `Store` that knows which requests were made under a key."""

    _forgot_at = float("-inf")  # when the expired keys were deleted by this process

    def _used(self, connection: sa.Connection, project: str, key: str, request_hash: str) -> str | None:
        """Id of the study that was made under the key; None while there is none."""
        keys = IDEMPOTENCY_KEYS
        if not self._database.sqlite:  # two first requests under one key take their turn
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"{project}/{key}"))))
        this = sa.and_(keys.c.project == project, keys.c.key == key)
        row = connection.execute(sa.select(keys).where(this)).first()
        if row is None:
            return None
        if row.created_at < self.clock() - _KEYS_KEPT_S:
            connection.execute(sa.delete(keys).where(this))
            return None
        if row.request_hash != request_hash:
            problem = f"a key stands for one request, but {shown(key)} was used for another one; take a fresh key"
            raise InvalidSpec("Idempotency-Key", problem)
        return str(row.study_id)

    def _use_key(
        self, connection: sa.Connection, project: str, key: str, request_hash: str, study_id: str, now: float
    ) -> None:
        """Note which study was made under the key."""
        names = {"project": project, "key": key, "request_hash": request_hash, "study_id": study_id}
        connection.execute(_INSERT, {**names, "created_at": now})

    def _forget_keys(self, now: float) -> None:
        """Delete the keys that have expired: now and then, in a transaction of its own, because it looks at all."""
        if abs(now - self._forgot_at) < _FORGET_EVERY_S:
            return
        self._forgot_at = now
        keys = IDEMPOTENCY_KEYS
        expired = sa.select(keys.c.project, keys.c.key).where(keys.c.created_at < now - _KEYS_KEPT_S)
        if not self._database.sqlite:  # whoever uses or deletes one just now goes on with it
            expired = expired.with_for_update(skip_locked=True)
        with self._database.write() as connection:
            connection.execute(sa.delete(keys).where(sa.tuple_(keys.c.project, keys.c.key).in_(expired)))
