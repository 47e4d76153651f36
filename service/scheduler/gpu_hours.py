"""Pauses studies of projects whose GPU-hours are used up, where their quota says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from driftline.errors import Conflict, NotFound
from driftline.wire.access import Quota
from service.store.store import Store

EVERY_S = 15.0


class GpuHours:
    """Looks now and then at the GPU-hours of the projects that have something to run.

    Args:
        store: The database.
        quota: What holds for projects for which nothing else was set.
        steady: A clock that is never set, in seconds.
    """

    def __init__(self, store: Store, quota: Quota, steady: Callable[[], float]) -> None:
        self._store = store
        self._quota = quota
        self._steady = steady
        self._looked = float("-inf")

    def step(self) -> None:
        """Pause what is to be paused: packs write checkpoints, as in a pause that the owner asks for."""
        if self._steady() - self._looked < EVERY_S:
            return
        self._looked = self._steady()
        for study_id, reason in self._store.quotas.used_up(self._quota).items():
            with contextlib.suppress(Conflict, NotFound):  # it has ended meanwhile
                self._store.studies.intend(study_id, "pause", reason=reason)
