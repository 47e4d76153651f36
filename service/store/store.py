"""The store: every study, trial and curve, in SQLite or PostgreSQL.

Methods return frozen records of `driftline.wire`, never live rows. Each method is one transaction: it stores everything
or, if it raises, nothing. Threads and processes may share a database; writes about a study take turns.

A method that takes a study's id raises `NotFound` if there is no such study.

A driver writes under the attempt that `Leases.acquire` gave it. Once another driver has acquired the study, every
write under the older attempt raises `StaleDriver`, so two drivers never change the same trials.
"""

import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from service.store.archives import Archives
from service.store.audit import AuditTrail
from service.store.curves import Curves
from service.store.database import Database
from service.store.deletions import Deletions
from service.store.facts import Facts
from service.store.idempotency import IdempotencyKeys
from service.store.leases import Leases
from service.store.locks import Locks
from service.store.plans import Plans
from service.store.quotas import Quotas
from service.store.recorder_state import RecorderState
from service.store.retries import Retries
from service.store.session import Session
from service.store.sizes import Sizes
from service.store.stats import Stats
from service.store.stored_events import Events
from service.store.stored_logs import Logs
from service.store.stored_studies import StoredStudies
from service.store.stored_tokens import StoredTokens
from service.store.stored_trials import Trials


class Store:
    """A database of studies; each attribute is one part, with a module of its own.

    Args:
        url: Path of a SQLite file, ``sqlite:///file`` or ``postgresql://user:password@host/name``; migrated as needed.
        clock: Returns Unix time in seconds; tests set their own.
        lease_seconds: How long a driver may be silent before another one may take over.

    Raises:
        Unavailable: The database cannot be reached.
        Conflict: The database was written by a newer Driftline.
    """

    def __init__(self, url: str | Path, *, clock: Callable[[], float] = time.time, lease_seconds: float = 30.0) -> None:
        session = self.session = Session(Database(url), clock=clock, lease_seconds=lease_seconds)
        self.idempotency = IdempotencyKeys(session)
        self.quotas = Quotas(session)
        self.studies = StoredStudies(session, self.quotas, self.idempotency)
        self.archives = Archives(session)
        self.deletions = Deletions(session)
        self.trials = Trials(session)
        self.curves = Curves(session)
        self.leases = Leases(session)
        self.plans = Plans(session)
        self.retries = Retries(session, self.plans, self.quotas, self.idempotency)
        self.events = Events(session)
        self.logs = Logs(session)
        self.tokens = StoredTokens(session)
        self.audit = AuditTrail(session)
        self.recorder_state = RecorderState(session)
        self.locks = Locks(session)
        self.facts = Facts(session)
        self.sizes = Sizes(session)
        self.stats = Stats(session)

    def ready(self) -> None:
        """Check that the database answers, and, if the last write failed, that it accepts writes.

        Raises:
            Unavailable: The database does not answer, or a write failed again.
        """
        with self.session.read() as connection:
            connection.execute(sa.select(sa.literal(1)))
        if self.session.database.writes_fail:
            self.locks.take("readiness", "probe", 1.0)

    def close(self) -> None:
        """Close all connections."""
        self.session.database.close()
