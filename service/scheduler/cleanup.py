"""Removes what is no longer wanted, a little in every turn of the scheduler."""

from __future__ import annotations

import time

from service.store.store import Store

TURN_S = 0.25
"""Seconds of a turn that are spent on deleting rows."""


class Cleanup:
    """Deletes the rows of deleted studies.

    Args:
        store: The database.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self) -> None:
        """Do some of what is to be done."""
        deadline = time.monotonic() + TURN_S
        while self._store.deletions.purge() and time.monotonic() < deadline:
            pass
