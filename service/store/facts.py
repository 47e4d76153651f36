"""Facts about the database itself."""

import sqlalchemy as sa

from service.store.schema import META
from service.store.session import StorePart


class Facts(StorePart):
    """Facts such as the study that a database belongs to."""

    def get(self, key: str) -> str | None:
        """A fact about this database, such as the fingerprint of its study; None if it was never set."""
        with self._session.read() as connection:
            value: str | None = connection.execute(sa.select(META.c.value).where(META.c.key == key)).scalar()
            return value

    def setdefault(self, key: str, value: str) -> str:
        """Set a fact unless it is set already.

        Returns:
            The stored value: the given one, or an earlier one.
        """
        with self._session.write() as connection:
            self._session.database.turn(connection, f"meta/{key}")
            stored: str | None = connection.execute(sa.select(META.c.value).where(META.c.key == key)).scalar()
            if stored is None:
                connection.execute(sa.insert(META).values(key=key, value=value))
            return value if stored is None else stored

    def put(self, key: str, value: str) -> None:
        """Set a fact, in place of an earlier value."""
        with self._session.write() as connection:
            self._session.database.turn(connection, f"meta/{key}")
            connection.execute(sa.delete(META).where(META.c.key == key))
            connection.execute(sa.insert(META).values(key=key, value=value))
