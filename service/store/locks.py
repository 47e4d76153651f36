"""Locks between processes, which expire unless they are renewed."""

import sqlalchemy as sa

from service.store.local_processes import gone
from service.store.schema import LOCKS
from service.store.session import StorePart


class Locks(StorePart):
    """The locks: which process holds which, and until when."""

    def take(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lock between processes.

        Args:
            name: What is locked: "scheduler", "recorder".
            holder: The process, as ``host/pid`` or ``host/pid/more``.
            seconds: The lock expires after this time. It can be taken at once from a process of this machine that
                has ended.

        Returns:
            Whether the holder has the lock now.
        """
        now = self._session.clock()
        with self._session.write() as connection:
            self._session.database.turn(connection, f"lock/{name}")  # there may be no row to lock yet
            row = connection.execute(sa.select(LOCKS).where(LOCKS.c.name == name)).first()
            if row is not None and row.holder != holder and row.expires_at > now and not gone(row.holder):
                if row.expires_at > now + seconds:  # the clock was set back: shorten the lock
                    shorter = sa.update(LOCKS).where(LOCKS.c.name == name).values(expires_at=now + seconds)
                    connection.execute(shorter)
                return False
            connection.execute(sa.delete(LOCKS).where(LOCKS.c.name == name))
            connection.execute(sa.insert(LOCKS).values(name=name, holder=holder, expires_at=now + seconds))
            return True

    def keep(self, name: str, holder: str, seconds: float) -> bool:
        """Renew a lock that no other process has taken since the holder took it, even if it has expired.

        Returns:
            Whether the lock was renewed.
        """
        conditions = (LOCKS.c.name == name, LOCKS.c.holder == holder)
        with self._session.write() as connection:
            expires_at = self._session.clock() + seconds
            return connection.execute(sa.update(LOCKS).where(*conditions).values(expires_at=expires_at)).rowcount == 1

    def release(self, name: str, holder: str) -> None:
        """Release a lock; does nothing if another process holds it."""
        with self._session.write() as connection:
            connection.execute(sa.delete(LOCKS).where(LOCKS.c.name == name, LOCKS.c.holder == holder))
