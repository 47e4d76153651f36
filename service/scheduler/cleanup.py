"""Deletes expired studies and what remains of deleted ones, and measures curves, a little at each look.

All work is derived from the database and the folder of checkpoints, so it continues after a crash. Only folders of
studies in this database are touched: another service may use the same folder of checkpoints.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple

from driftline.errors import DriftlineError
from driftline.wire.access import Quota
from service.driver import checkpoints
from service.launchers.base import Launcher
from service.store.store import Store

_LOG = logging.getLogger(__name__)
TURN_S = 0.25
"""Seconds of a look that are spent on deleting rows and measuring curves."""

FAILED_KEPT_S = 30 * 24 * 3600.0
"""For how long the checkpoints of a FAILED study are kept, so that a resumed study continues from them."""

STUDIES = 20
"""Maximum number of deleted studies whose files are removed at a time."""

FOLDERS = 200
"""Maximum number of studies' folders that a sweep looks at."""

EXPIRED = 100
"""Maximum number of expired studies that are deleted at a time."""

SWEEP_S = 60.0

CLOCK_S = 3600.0
"""How long nothing expires after the clock was set forward: a wrong clock would make all studies old."""

MEASURE_S = 15.0
_EVERYTHING = sys.maxsize  # later than every attempt


class Removed(NamedTuple):
    """What the thread has done: the studies whose checkpoints it has removed, and the errors of the others."""

    studies: list[str]
    errors: list[Exception]


class Cleanup:
    """Deletes expired studies, what remains of deleted studies, and old checkpoints.

    Checkpoints are removed in a thread, so that a hanging storage does not block the scheduler.

    Args:
        store: The database.
        launcher: Removes drivers' logs, and shows whether a driver of a deleted study is still alive.
        folder: Path or URL of the folder of checkpoints; None if the scheduler cannot reach it.
        quota: Limits of projects without their own.
        steady: A monotonic clock in seconds.
    """

    def __init__(
        self, store: Store, launcher: Launcher, folder: str | None, quota: Quota, steady: Callable[[], float]
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._folder = folder
        self._quota = quota
        self._steady = steady
        self._expire_at = self._files_at = self._sweep_at = self._measure_at = float("-inf")  # when each is due
        self._last = ""  # last folder of the previous sweep, if others remain
        self._removal: Future[Removed] | None = None
        self._clock_ahead = store.session.clock() - steady()  # at the last look
        self._trust_clock_at = float("-inf")  # until then, nothing expires
        self._page: Sequence[str] = ()  # deleted studies whose files are being removed
        self._after = ""  # id up to which this round has tried all deleted studies

    def step(self) -> None:
        """Do some of the pending work.

        Raises:
            Unavailable: The store does not answer.
        """
        now = self._steady()
        ahead = self._store.session.clock() - now
        if ahead > self._clock_ahead + SWEEP_S:
            self._trust_clock_at = now + CLOCK_S
            _LOG.warning("the clock was set forward by %.0f s: nothing expires for an hour", ahead - self._clock_ahead)
        self._clock_ahead = ahead
        if now >= max(self._expire_at, self._trust_clock_at):
            self._expire_at = now + SWEEP_S
            self._store.archives.remove_unused()
            for study_id in self._store.deletions.expire(self._quota, EXPIRED):
                _LOG.info("study %s was deleted: the retention time of its project is over", study_id)
        deadline = time.monotonic() + TURN_S
        while self._store.deletions.purge() and time.monotonic() < deadline:
            pass
        while now >= self._measure_at and time.monotonic() < deadline:
            if not self._store.sizes.measure():
                self._measure_at = now + MEASURE_S
        try:
            self._remove_files(now)
        except Exception as error:  # storages raise errors of their own packages
            self._files_at = now + SWEEP_S
            _warn(error)

    def _remove_files(self, now: float) -> None:
        """Record what the thread has removed and give it the next studies, unless it still works."""
        if self._folder is None or (self._removal is not None and not self._removal.done()):
            return
        self._note_removed()
        if now < self._files_at:
            return
        pending = self._store.deletions.pending("files", STUDIES, self._after)
        if not pending and self._after:
            self._after, self._files_at = "", now + SWEEP_S
            return
        self._page, deleted = self._without_driver([deletion.study_id for deletion in pending])
        sweep = now >= self._sweep_at
        if deleted or sweep:
            self._sweep_at = now + SWEEP_S if sweep else self._sweep_at
            failed_before = now + self._clock_ahead - FAILED_KEPT_S if now >= self._trust_clock_at else 0.0
            self._start(self._folder, deleted, failed_before if sweep else None)
        elif self._page:
            self._after = self._page[-1]

    def _without_driver(self, studies: Sequence[str]) -> tuple[Sequence[str], list[str]]:
        """The deleted studies up to the first that the launcher cannot report on, and those of them without a driver.

        Asking an unreachable launcher takes time, so the next look asks about the remaining studies.
        """
        gone: list[str] = []
        for number, study_id in enumerate(studies, 1):
            try:
                if self._driver_gone(study_id):
                    gone.append(study_id)
            except DriftlineError as error:
                _warn(error)
                return studies[:number], gone
        return studies, gone

    def _driver_gone(self, study_id: str) -> bool:
        """Whether a deleted study has no live driver; stops a live one."""
        if self._launcher.seen(study_id).alive:
            self._launcher.stop(study_id)
            return False
        return True

    def _start(self, folder: str, deleted: Sequence[str], failed_before: float | None) -> None:
        """Start the thread; it sweeps, too, if `failed_before` is not None."""
        removal: Future[Removed] = Future()

        def remove() -> None:
            removed = Removed([], [])
            try:
                for study_id in deleted:
                    with _collected(removed.errors):
                        checkpoints.clear(checkpoints.join(folder, study_id), _EVERYTHING)
                        removed.studies.append(study_id)
                if failed_before is not None:
                    with _collected(removed.errors):
                        self._sweep(folder, failed_before, removed.errors)
                removal.set_result(removed)
            except BaseException as error:
                removal.set_exception(error)

        self._removal = removal
        threading.Thread(target=remove, name="driftline-cleanup", daemon=True).start()

    def _note_removed(self) -> None:
        """Remove the logs of studies whose checkpoints were removed, and skip studies with errors in this round."""
        removal, self._removal = self._removal, None
        if removal is None:
            return
        done = 0
        removed = removal.result()
        for study_id in removed.studies:
            with _collected(removed.errors):
                self._launcher.forget(study_id)
                self._store.deletions.done(study_id, "files")
                done += 1
        if done < len(self._page):
            self._after = self._page[-1]
        if removed.errors:
            _warn(removed.errors[0])

    def _sweep(self, folder: str, failed_before: float, errors: list[Exception]) -> None:
        """Remove checkpoints of studies that were cancelled, succeeded, or failed before this Unix time."""
        names = sorted(checkpoints.folders(folder))
        part = [name for name in names if name > self._last][:FOLDERS]
        self._last = part[-1] if len(part) == FOLDERS else ""
        for study_id, attempt in self._store.studies.ended(part, failed_before).items():
            with _collected(errors):
                checkpoints.clear(checkpoints.join(folder, study_id), attempt)


def _warn(error: Exception) -> None:
    _LOG.warning("checkpoints or logs could not be removed, next attempt in %.0f s: %s", SWEEP_S, error)


@contextmanager
def _collected(errors: list[Exception]) -> Iterator[None]:
    """Collects an error, so that a study whose files cannot be removed does not block the others."""
    try:
        yield
    except Exception as error:
        errors.append(error)
