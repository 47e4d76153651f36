"""The loop that carries out what `reconcile` decides, in a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from service.errors import DriftlineError
from service.names import holder
from service.scheduler.reconcile import MAX_DEATHS, Action, Launched, Lost, Queue, Settle, Start, Stop, reconcile
from service.store.drivers import Driven
from service.store.store import Store

_LOG = logging.getLogger(__name__)
_LOCK = "scheduler"
_LOCK_S = 30.0


class Launcher(Protocol):
    """Starts and stops drivers: in this process, in another one, or on a cluster."""

    def start(self, study_id: str, token: str, attempt: int) -> None:
        """Start a driver; asked again for a driver that runs, do nothing.

        Args:
            study_id: The study it is to drive.
            token: Its bearer token.
            attempt: The attempt it is expected to acquire; with the study's id a name for this start.
        """

    def alive(self, study_id: str) -> bool:
        """Whether a driver that was started for the study still runs (or is about to)."""

    def stop(self, study_id: str) -> None:
        """End the study's driver and forget it; nothing happens when there is none."""


class Scheduler:
    """Gives every study its driver, one study at a time on a Ray cluster.

    Several processes may run one over the same store: only the one that has the store's lock acts.

    Args:
        store: The database.
        launcher: Starts drivers.
        token: Gives a driver's token for (study id, project).
        cluster: The Ray cluster a study would run on; None for one of its own. By default all share one.
        every_s: Seconds between two looks.
        max_deaths: A study fails when so many drivers were lost in a row.
        start_seconds: A driver that has not acquired its study after so long is lost.
    """

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        token: Callable[[str, str], str],
        *,
        cluster: Callable[[Driven], str | None] = lambda study: "ray",
        every_s: float = 1.0,
        max_deaths: int = MAX_DEATHS,
        start_seconds: float = 600.0,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._token = token
        self._cluster = cluster
        self._every_s = every_s
        self._max_deaths = max_deaths
        self._start_seconds = start_seconds
        self._started: dict[str, Launched] = {}  # by study id
        self._name = f"{holder()}/{id(self):x}"
        self._stop = threading.Event()
        self._look = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run in a thread until `close`."""
        self._thread = threading.Thread(target=self._run, name="driftline-scheduler", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at once instead of after the pause."""
        self._look.set()

    def close(self) -> None:
        """Stop the loop and let go of the lock; drivers run on."""
        self._stop.set()
        self._look.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._store.unlock(_LOCK, self._name)
        except DriftlineError:
            _LOG.warning("the scheduler's lock could not be given back; it expires", exc_info=True)

    def step(self) -> list[Action]:
        """Look once and act; returns what was done. Nothing when another scheduler has the lock."""
        if not self._store.lock(_LOCK, self._name, _LOCK_S):
            return []
        studies = {study.id: study for study in self._store.driven()}
        clusters = {study.id: self._cluster(study) or study.id for study in studies.values()}
        now = self._store.clock()
        for study_id, ours in self._started.items():
            self._started[study_id] = self._seen(study_id, ours, studies.get(study_id), now)
        actions = reconcile(
            list(studies.values()),
            self._started,
            clusters,
            now,
            max_deaths=self._max_deaths,
            start_seconds=self._start_seconds,
        )
        for action in actions:
            try:
                self._do(action, studies.get(action.study_id), clusters.get(action.study_id, ""))
            except DriftlineError as error:  # things have changed since the look: the next one sees how they are
                _LOG.info("%s was overtaken: %s", action, error)
        return actions

    def _seen(self, study_id: str, ours: Launched, study: Driven | None, now: float) -> Launched:
        """The driver as its launcher sees it now."""
        waiting = study is not None and (study.held or study.lost or study.attempt < ours.attempt)
        idle_since = None if waiting else ours.idle_since or now
        return replace(ours, alive=self._launcher.alive(study_id), idle_since=idle_since)

    def _do(self, action: Action, study: Driven | None, cluster: str) -> None:
        study_id = action.study_id
        match action:
            case Start() if study is not None:
                token = self._token(study_id, study.project)
                try:
                    self._launcher.start(study_id, token, action.attempt)
                except Exception as error:
                    _LOG.exception("the driver of study %s could not be started", study_id)
                    self._store.lost(study_id, 0, f"it could not be started: {error}")
                else:
                    self._started[study_id] = Launched(action.attempt, True, self._store.clock(), cluster, study.name)
            case Queue():
                self._store.settle(study_id, "QUEUED", action.reason)
            case Lost():
                self._store.lost(study_id, action.attempt, action.reason, counted=action.counted)
            case Stop():
                self._launcher.stop(study_id)
                self._started.pop(study_id, None)
            case Settle():
                self._store.settle(study_id, action.state, action.reason)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.step()
            except DriftlineError as error:
                _LOG.warning("the scheduler could not look: %s", error)
            except Exception:
                _LOG.exception("the scheduler failed; it goes on")
            self._look.wait(self._every_s)
            self._look.clear()
