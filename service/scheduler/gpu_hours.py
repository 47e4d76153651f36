"""Pauses studies of projects whose GPU-hours are used up, if their quotas say so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from driftline.errors import Conflict, NotFound
from driftline.wire.access import Quota
from service.store.store import Store

EVERY_S = 15.0


class GpuHours:
    """Checks the GPU-hours of projects with active studies every `EVERY_S` seconds.

    Args:
        store: The database.
        quota: Limits of projects without their own.
        steady: A monotonic clock in seconds.
    """

    def __init__(self, store: Store, quota: Quota, steady: Callable[[], float]) -> None:
        self._store = store
        self._quota = quota
        self._steady = steady
        self._looked = float("-inf")

    def step(self) -> None:
        """Pause studies of projects without GPU-hours; packs write checkpoints, as when the owner pauses a study."""
        if self._steady() - self._looked < EVERY_S:
            return
        self._looked = self._steady()
        for study_id, reason in self._store.quotas.used_up(self._quota).items():
            with contextlib.suppress(Conflict, NotFound):  # it finished in the meantime
                self._store.studies.intend(study_id, "pause", reason=reason)
