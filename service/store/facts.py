"""Facts about the database itself."""

import sqlalchemy as sa

from service.store.schema import META
from service.store.session import Session


class Facts:
    """Keeps facts that are set once, such as the study that a database is for."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, key: str) -> str | None:
        """A fact about this database, such as the fingerprint of the study it is for; None when it was never set."""
        with self._session.read() as connection:
            found: str | None = connection.execute(sa.select(META.c.value).where(META.c.key == key)).scalar()
            return found

    def setdefault(self, key: str, value: str) -> str:
        """Set a fact that was never set.

        Returns:
            The fact as it stands: the given value, or the one that was there before.
        """
        with self._session.write() as connection:
            self._session.database.turn(connection, f"meta/{key}")
            found: str | None = connection.execute(sa.select(META.c.value).where(META.c.key == key)).scalar()
            if found is None:
                connection.execute(sa.insert(META).values(key=key, value=value))
            return value if found is None else found
