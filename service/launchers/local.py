"""Drivers as processes of this machine."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

_LOG = logging.getLogger(__name__)
STOP_S = 150.0
"""Seconds that a driver gets to have checkpoints written and Ray ended, before it is killed."""


class LocalLauncher:
    """Runs each driver as a process of its own; a `service.scheduler.loop.Launcher`.

    A driver outlives this process and goes on; a service that is started again leaves it alone while its lease lasts.

    Args:
        url: Address of the service, as the driver reaches it.
        folder: Path or URL of the folder for checkpoints.
        socket: Unix socket of the service, instead of its address.
        logs: Folder for the drivers' logs, one file a study; None lets them write to this process's stderr.
        address: Ray cluster that all drivers use; None has each start its own.
        num_cpus: CPU cores of a Ray that a driver starts; what the machine has by default.
        stop_s: Seconds that a driver gets to end.
    """

    def __init__(
        self,
        url: str,
        folder: str,
        *,
        socket: str | None = None,
        logs: Path | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        stop_s: float = STOP_S,
    ) -> None:
        options = {"url": url, "socket": socket, "folder": folder, "address": address, "num-cpus": num_cpus}
        self._options = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self._logs = logs
        self._stop_s = stop_s
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, study_id: str, token: str, attempt: int) -> None:
        """Starts the study's driver; nothing happens when it runs."""
        if self.alive(study_id):
            return
        command = [sys.executable, "-m", "service.driver", f"--study={study_id}", *self._options]
        environment = {**os.environ, "DRIFTLINE_TOKEN": token}
        log = None
        if self._logs is not None:
            self._logs.mkdir(parents=True, exist_ok=True)
            log = (self._logs / f"{study_id}.log").open("ab")
        try:
            self._running[study_id] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the service, which then stops its drivers in order
            )
        finally:
            if log is not None:
                log.close()
        _LOG.info("driver of study %s, attempt %d: process %d", study_id, attempt, self._running[study_id].pid)

    def alive(self, study_id: str) -> bool:
        """Whether the study's driver runs."""
        return study_id in self._running and self._running[study_id].poll() is None

    def stop(self, study_id: str) -> None:
        """Has the study's driver come to its checkpoints and end; comes back at once."""
        process = self._running.pop(study_id, None)
        if process is None or process.poll() is not None:
            return
        process.terminate()
        threading.Thread(target=self._bury, args=(study_id, process), daemon=True).start()

    def close(self) -> None:
        """Stops all drivers and waits for them."""
        stopping = dict(self._running)
        for study_id in stopping:
            self.stop(study_id)
        for study_id, process in stopping.items():
            self._bury(study_id, process)

    def _bury(self, study_id: str, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            _LOG.error("the driver of study %s did not end within %.0f s: killed", study_id, self._stop_s)
            process.kill()
            process.wait()
