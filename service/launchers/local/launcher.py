"""Drivers as processes of this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from pydantic import Field

from driftline.errors import Unavailable
from driftline.study.validation import Section
from service.file_locks import acquire
from service.launchers.base import Launch, Launcher, Seen
from service.launchers.local import driver_processes

__all__ = ["STOP_S", "LocalLauncher"]

ON_THIS_MACHINE = True

_LOG = logging.getLogger(__name__)
STOP_S = 150.0
"""Seconds that a driver gets to have checkpoints written and Ray ended, before it is killed."""
_SWEEP_S = 5.0
"""Seconds that killed processes get to be gone."""

_SECRETS = frozenset(
    {"DRIFTLINE_SECRET", "DRIFTLINE_ADMIN_TOKEN", "DRIFTLINE_DATABASE_URL", "MLFLOW_TRACKING_PASSWORD"}
)


class Config(Section):
    """Settings of the launcher `local`.

    Attributes:
        address: Ray cluster that all drivers use; without it each starts its own.
        num_cpus: CPU cores of a Ray that a driver starts; what the machine has by default.
        stop_seconds: Seconds that a driver gets to end, before it is killed.
    """

    address: str | None = None
    num_cpus: int | None = Field(None, ge=1)
    stop_seconds: float = Field(STOP_S, gt=0)


def build(config: Config, *, url: str, checkpoints: str, logs: Path) -> LocalLauncher:
    """The launcher of a service.

    Args:
        config: Its settings.
        url: Address of the service, as drivers reach it.
        checkpoints: Path or URL of the folder for checkpoints.
        logs: Folder for the drivers' logs and locks.
    """
    return LocalLauncher(
        url, checkpoints, logs, address=config.address, num_cpus=config.num_cpus, stop_s=config.stop_seconds
    )


class LocalLauncher(Launcher):
    """Runs each driver as a process of its own; a `service.launchers.base.Launcher`.

    A driver outlives this process and goes on. It holds the lock of a file STUDY.lock that it inherits, for as long as
    it lives, so that a service that is started again, or a second one over the same folder, finds it there. On a system
    with /proc it is also found when that file was deleted, and what a dead driver has left behind is ended.

    Args:
        url: Address of the service, as the driver reaches it.
        folder: Path or URL of the folder for checkpoints.
        logs: Folder for the drivers' logs and locks, a file of each a study.
        socket: Unix socket of the service, instead of its address.
        address: Ray cluster that all drivers use; None has each start its own.
        num_cpus: CPU cores of a Ray that a driver starts; what the machine has by default.
        stop_s: Seconds that a driver gets to end.
    """

    def __init__(
        self,
        url: str,
        folder: str,
        logs: Path,
        *,
        socket: str | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        stop_s: float = STOP_S,
    ) -> None:
        options = {"url": url, "socket": socket, "folder": folder, "address": address, "num-cpus": num_cpus}
        self._options = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self._logs = logs.resolve()
        self._stop_s = stop_s
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: dict[str, float] = {}  # study to when its driver is killed

    def start(self, launch: Launch) -> None:
        """Starts the study's driver; nothing happens when it runs.

        Raises:
            Unavailable: Processes of an earlier driver of the study cannot be ended: they may still write.
        """
        study_id = launch.study_id
        if self._pid(study_id) is not None:
            return
        self._logs.mkdir(parents=True, exist_ok=True)
        with self._lock_file(study_id).open("a+") as lock, self._log_file(study_id).open("ab") as log:
            if not acquire(lock):
                return
            lock.truncate(0)  # the process that it names is no more
            if left := self._sweep(study_id):
                pids = ", ".join(map(str, left))
                raise Unavailable(
                    f"all processes of the last driver must have ended, got {pids}, which SIGKILL does not end: "
                    "look for a disk or a GPU that does not answer"
                )
            child = subprocess.Popen(
                [sys.executable, "-m", "service.driver", f"--study={study_id}", *self._options],
                env={**_environment(launch.token), driver_processes.MARK: str(self._lock_file(study_id))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                start_new_session=True,  # Ctrl-C is for the service, which then stops its drivers in order
            )
            lock.write(str(child.pid))
        self._children[study_id] = child
        self._ending.pop(study_id, None)
        _LOG.info("driver of study %s, attempt %d: process %d", study_id, launch.attempt, child.pid)

    def seen(self, study_id: str) -> Seen:
        """The study's driver, whoever has started it; a dead one with the last line of its log."""
        self._reap(study_id)
        if self._pid(study_id) is not None:
            return Seen(True)
        child = self._children.get(study_id)
        code = 0 if child is None else child.poll()
        if code is None:  # it has let go of its lock and is about to end
            return Seen(True)
        if code == 0:
            return Seen(False)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = _last_line(self._log_file(study_id))
        return Seen(False, f"its process has ended with {how}" + (f": {said}" if said else ""))

    def stop(self, study_id: str) -> None:
        """Has the study's driver come to its checkpoints and end; comes back at once.

        One that does not end in time is killed by a later call of any method.
        """
        self._reap(study_id)
        pid = self._pid(study_id)
        if pid is None:
            self._kill(study_id)  # workers of a dead driver end by themselves, unless they hang
            self._children.pop(study_id, None)
            self._ending.pop(study_id, None)
        elif study_id not in self._ending:
            self._ending[study_id] = time.monotonic() + self._stop_s
            _signal(pid, signal.SIGTERM)

    def kill(self, study_id: str) -> None:
        """Ends the study's driver with all its processes at once; comes back at once."""
        self._kill(study_id)

    def collect(self, known: Collection[str]) -> None:
        """Stops drivers of studies that no longer exist."""
        for lock in self._logs.glob("*.lock"):
            if lock.stem not in known:
                self.stop(lock.stem)
                if self._pid(lock.stem) is None:
                    lock.unlink(missing_ok=True)
        for study_id in list(self._ending):
            self._reap(study_id)

    def forget(self, study_id: str) -> None:
        """Removes the study's log and lock."""
        self._children.pop(study_id, None)
        for file in (self._log_file(study_id), self._lock_file(study_id)):
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets go; drivers run on."""

    def end(self, seconds: float) -> None:
        """Stops all drivers of this folder, whoever has started them, and waits until nothing of them runs.

        Args:
            seconds: After so long those that are left are killed.
        """
        deadline = time.monotonic() + seconds
        studies = {lock.stem for lock in self._logs.glob("*.lock")} | set(driver_processes.marked(self._logs))
        running = {study_id for study_id in studies if self._pid(study_id) is not None}
        for study_id in running:
            self.stop(study_id)
        while time.monotonic() < deadline and any(self._pid(study_id) is not None for study_id in running):
            time.sleep(0.1)
        for study_id in sorted(running | set(driver_processes.marked(self._logs))):
            if self._pid(study_id) is not None:
                _LOG.error("the driver of study %s did not end within %.0f s: killed", study_id, seconds)
                self._kill(study_id)
            if left := self._sweep(study_id):
                _LOG.error("processes of study %s do not end: %s", study_id, ", ".join(map(str, left)))
        for child in self._children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_SWEEP_S)
        self._children.clear()
        self._ending.clear()

    def _reap(self, study_id: str) -> None:
        """Takes note of a child that has ended; kills a driver whose time to end is up."""
        child = self._children.get(study_id)
        if child is not None:
            child.poll()
        if time.monotonic() < self._ending.get(study_id, float("inf")):
            return
        del self._ending[study_id]
        if self._pid(study_id) is not None:
            _LOG.error("the driver of study %s did not end within %.0f s: killed", study_id, self._stop_s)
        self._kill(study_id)

    def _pid(self, study_id: str) -> int | None:
        """The process that holds the study's lock; None when nobody does, 0 when it is not known which."""
        try:
            with self._lock_file(study_id).open("r+") as lock:
                if acquire(lock, shared=True):  # two that look at once do not take each other for a driver
                    return None
                text = lock.read()
        except FileNotFoundError:  # there was no driver, or its file was deleted under it
            return driver_processes.driver(self._logs, study_id)
        return int(text) if text.isdecimal() else 0

    def _kill(self, study_id: str) -> None:
        """Sends SIGKILL to a driver and all its processes."""
        pid = self._pid(study_id)
        if pid:
            for send in (os.killpg, os.kill):  # a driver leads a group of its own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    send(pid, signal.SIGKILL)
        driver_processes.kill(self._logs, study_id)

    def _sweep(self, study_id: str) -> list[int]:
        """Kills what a driver has left behind and waits until it has gone; gives the processes that have not."""
        deadline = time.monotonic() + _SWEEP_S
        while left := driver_processes.kill(self._logs, study_id):  # a dying one may have started another
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return left

    def _lock_file(self, study_id: str) -> Path:
        return self._logs / f"{study_id}.lock"

    def _log_file(self, study_id: str) -> Path:
        return self._logs / f"{study_id}.log"


def _environment(token: str) -> dict[str, str]:
    """This process's variables without the service's secrets: a driver's token is good for its study alone."""
    kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    return {**kept, "DRIFTLINE_TOKEN": token}


def _signal(pid: int, number: signal.Signals) -> None:
    if pid > 0:  # 0 would be everybody
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _last_line(file: Path) -> str:
    """The last line of a log, cut to what fits into a reason."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - 4096))
            lines = log.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else ""
