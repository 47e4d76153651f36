"""Drivers in threads of this process, for the scheduler of an embedded run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from driftline.client.driver_client import DriverClient
from driftline.errors import DriftlineError
from service.launchers.base import Launch, Launcher, Seen

_LOG = logging.getLogger(__name__)
STOP_S = 120.0


class ThreadLauncher(Launcher):
    """Runs each driver in a thread; a `service.launchers.base.Launcher` whose drivers end with this process.

    Args:
        connect: Makes a connection to the API for a token.
        drive: Drives a study until it ends or the event is set: (client, study_id, stop).

    Attributes:
        stop_s: Seconds that a driver gets to write its checkpoints and end Ray, before it is left behind.
    """

    secrets = True  # programs take them from the environment of this process
    images = True  # which are ignored, as a remark says

    def __init__(
        self, connect: Callable[[str], DriverClient], drive: Callable[[DriverClient, str, threading.Event], object]
    ) -> None:
        self._connect = connect
        self._drive = drive
        self.stop_s = STOP_S
        self._running: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self._errors: dict[str, str] = {}  # error with which the study's newest driver ended

    def start(self, launch: Launch) -> None:
        """Starts the study's driver; does nothing if it is running."""
        study_id = launch.study_id
        if self.seen(study_id).alive:
            return
        self._errors.pop(study_id, None)
        stop = threading.Event()
        thread = threading.Thread(
            target=self._run,
            args=(study_id, launch.token, stop),
            name=f"driftline-driver-{launch.attempt}",
            daemon=True,
        )
        self._running[study_id] = (thread, stop)
        thread.start()

    def seen(self, study_id: str) -> Seen:
        """Whether the study's driver runs; if not, the reason is the error with which it ended."""
        alive = study_id in self._running and self._running[study_id][0].is_alive()
        return Seen(alive, "" if alive else self._errors.get(study_id, ""))

    def stop(self, study_id: str) -> None:
        """Makes the study's driver write its checkpoints and end, and waits for it."""
        if study_id not in self._running:
            return
        thread, stop = self._running.pop(study_id)
        stop.set()
        thread.join(self.stop_s)
        if thread.is_alive():
            _LOG.error("the driver of study %s did not end within %.0f s", study_id, self.stop_s)

    def kill(self, study_id: str) -> None:
        """Tells the study's driver to end: a thread cannot be ended from outside."""
        if study_id in self._running:
            self._running[study_id][1].set()

    def collect(self, study_ids: Collection[str]) -> None:
        """Stops drivers of studies that no longer exist."""
        for study_id in set(self._running) - set(study_ids):
            self.stop(study_id)

    def close(self) -> None:
        """Stops all drivers: threads do not outlive their process."""
        for study_id in list(self._running):
            self.stop(study_id)

    def _run(self, study_id: str, token: str, stop: threading.Event) -> None:
        try:
            with self._connect(token) as client:
                self._drive(client, study_id, stop)
        except DriftlineError as error:
            self._errors[study_id] = error.message
            _LOG.warning("the driver of study %s ended: %s", study_id, error)
        except Exception:
            _LOG.exception("the driver of study %s failed", study_id)
