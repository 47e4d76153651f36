"""The store: every study, trial and curve, in SQLite or PostgreSQL.

Values that go out are frozen records of `driftline.study`, never live rows. A method is one transaction: all of it is
stored, or, when it raises, nothing. Threads and processes may share a database: writes about a study take turns.

A driver writes under the attempt that `Store.acquire` gave it. Once another driver has acquired the study, every
write under the older attempt raises `StaleDriver`: two drivers never move the same trials.
"""

from service.store.speeds import Speeds


class Store(Speeds):
    """A database of studies.

    Args:
        url: Path of a SQLite file, ``sqlite:///file`` or ``postgresql://user:password@host/name``; migrated as needed.
        clock: Gives the time in seconds since 1970 (UTC); tests set their own.
        lease_seconds: How long a driver may be silent before another one may take over.

    Raises:
        Unavailable: The database cannot be reached.
        Conflict: The database was written by a newer Driftline.
    """
