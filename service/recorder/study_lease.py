"""The lease of the only recorder that writes about a study."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from driftline.wire.ids import holder
from service.store.store import Store

LEASE_S = 20.0


class StudyLease:
    """A recorder's lease on a study, taken and renewed in the store.

    Args:
        store: The store.
        study_id: Id of the study.
        owner: Who has it; by default this object alone.

    Attributes:
        name: Name of the lock in the store.
        owner: Who has it.
    """

    def __init__(self, store: Store, study_id: str, owner: str | None = None) -> None:
        self._locks = store.locks
        self.name = f"recorder/{study_id}"
        self.owner = owner or holder()
        self._renewed = 0.0

    def take(self) -> bool:
        """Take the lease; False if another recorder has it."""
        now = time.monotonic()
        if not self._locks.take(self.name, self.owner, LEASE_S):
            return False
        self._renewed = now
        return True

    def keep(self, *, force: bool = False) -> bool:
        """Renew the lease; False if another recorder may have had it since it was taken.

        Args:
            force: Ask the store even if the lease was renewed shortly before.
        """
        now = time.monotonic()
        if force or now - self._renewed > LEASE_S / 4:
            if not self._locks.keep(self.name, self.owner, LEASE_S):
                return False
            self._renewed = now
        return True

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Renews the lease meanwhile: one step of a large study, or one slow answer, may take longer than the lease."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_S / 4):
                with contextlib.suppress(Exception):  # the next write will say so
                    self._locks.keep(self.name, self.owner, LEASE_S)

        thread = threading.Thread(target=renew, name="recorder-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def release(self) -> None:
        """Release the lease; does nothing if another recorder has it."""
        self._locks.release(self.name, self.owner)
