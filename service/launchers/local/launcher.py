"""Drivers as processes on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from pydantic import Field

from driftline.errors import InvalidSpec, Unavailable
from driftline.study.validation import Section
from service.child_environment import SECRET, child_environment
from service.confined import becomes_nobody, command
from service.cores import usable_cores
from service.file_locks import acquire, own_folder
from service.gpus import machine_gpus
from service.launchers.base import Launch, Launcher, Seen
from service.launchers.local import driver_processes
from service.launchers.worker_pools import Room, WorkerPools
from service.settings import read_service
from service.signal_names import signal_name
from trainers.own_files import append, read, update

__all__ = ["STOP_S", "LocalLauncher"]

ON_THIS_MACHINE = True

_LOG = logging.getLogger(__name__)
STOP_S = 150.0
"""Seconds that a driver gets to write checkpoints and end Ray, before it is killed."""
_SWEEP_S = 5.0
"""Seconds to wait until killed processes are gone."""

_INHERITED = (
    "RAY_",
    "DRIFTLINE_HOME",
    "DRIFTLINE_HANG_SECONDS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NO_PROXY",
    "no_proxy",
)
_PREFIX, _LONGEST = "dl", 16  # of the drivers' own folders; a Ray makes folders with sockets in them


class Config(Section):
    """Settings of the launcher `local`.

    Attributes:
        address: Ray cluster that all drivers use; without it each starts its own.
        num_cpus: CPU cores of a Ray that a driver starts; by default all that it may use.
        stop_seconds: Seconds that a driver gets to end, before it is killed.
        inherit: Names of the service's environment variables that drivers get too, such as those for a storage of
            checkpoints; every study can read them. ``AWS_`` stands for all that begin so.
    """

    address: str | None = None
    num_cpus: int | None = Field(None, ge=1)
    stop_seconds: float = Field(STOP_S, gt=0)
    inherit: list[str] = Field(default_factory=list)


def build(config: Config, *, url: str, checkpoints: str, logs: Path) -> LocalLauncher:
    """The launcher of a service.

    Args:
        config: Its settings.
        url: Address of the service, as drivers reach it.
        checkpoints: Path or URL of the folder for checkpoints.
        logs: Folder for the drivers' logs and locks.

    Raises:
        InvalidSpec: Drivers would get the account nobody, which can write no checkpoints.
    """
    if becomes_nobody():
        raise InvalidSpec(
            "DRIFTLINE_LAUNCHER",
            "local runs no drivers for root on a kernel without Landlock (Linux 5.13), because it could not keep the "
            "service's secrets from them: start the service with another account",
        )
    return LocalLauncher(
        url,
        checkpoints,
        logs,
        address=config.address,
        num_cpus=config.num_cpus,
        stop_s=config.stop_seconds,
        inherit=config.inherit,
        hidden=(logs.parent, *read_service(os.environ).secret_files),
    )


class LocalLauncher(Launcher):
    """Runs each driver as a separate process; a `service.launchers.base.Launcher`.

    A driver outlives this process. As long as it lives it holds the lock of a file STUDY.lock, which it inherits, so
    that a restarted service, or a second one over the same folder, finds it. On a system with /proc a driver is found
    even if that file was deleted, and processes that a dead driver has left behind are ended.

    Args:
        url: Address of the service, as the driver reaches it.
        folder: Path or URL of the folder for checkpoints.
        logs: Folder for the drivers' logs and locks, one of each per study.
        socket: Unix socket of the service, instead of its address.
        address: Ray cluster that all drivers use; if None, each starts its own.
        num_cpus: CPU cores of a Ray that a driver starts; by default all that it may use.
        stop_s: Seconds that a driver gets to end.
        inherit: Names of further environment variables that drivers get.
        hidden: Files and folders with secrets, which drivers and their workers may not read.
    """

    secrets = True

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
        inherit: Collection[str] = (),
        hidden: Sequence[Path] = (),
    ) -> None:
        options = {"url": url, "socket": socket, "folder": folder, "address": address, "num-cpus": num_cpus}
        self._options = [f"--{name}={value}" for name, value in options.items() if value is not None]
        if address is None:
            room = Room(
                cpus=num_cpus or usable_cores(), gpus=machine_gpus(), nodes=1, worker="the machine of this service"
            )
            self.pools = WorkerPools(rooms={"": room})
        self._logs = logs.resolve()
        self._stop_s = stop_s
        self._inherit, self._hidden = (*_INHERITED, *inherit), hidden
        self._checkpoints = [] if "://" in folder else [Path(folder)]
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: dict[str, float] = {}  # by study: when its driver will be killed

    def start(self, launch: Launch) -> None:
        """Starts the study's driver; does nothing if it is running.

        Raises:
            InvalidSpec: The service has no environment variable with the name of a secret.
            Unavailable: Processes of an earlier driver of the study cannot be ended, and may still write; or its log or
                lock cannot be written.
        """
        if self._pid(launch.study_id) is not None:
            return
        for name in launch.secrets:
            if name not in os.environ:
                raise InvalidSpec("program.secrets", f"must be variables of the service, which has none named {name}")
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            self._start(launch)
        except OSError as error:
            raise Unavailable(f"{error.filename or self._logs}: {error.strerror or error}") from error

    def _start(self, launch: Launch) -> None:
        study_id = launch.study_id
        with update(self._lock_file(study_id)) as lock, os.fdopen(append(self._log_file(study_id)), "ab") as log:
            if not acquire(lock):
                return
            lock.truncate(0)  # the process that it names has ended
            if left := self._sweep(study_id):
                pids = ", ".join(map(str, left))
                raise Unavailable(
                    f"all processes of the last driver must have ended, got {pids}, which SIGKILL does not end: "
                    "look for a disk or a GPU that does not answer"
                )
            for checkpoints in self._checkpoints:
                checkpoints.mkdir(parents=True, exist_ok=True)  # a folder that does not exist cannot be allowed
            # The driver may not write to folders that hold hidden files, so not to /tmp.
            folder, folder_lock = own_folder(_PREFIX, _LONGEST)
            environment = child_environment(os.environ, more=self._inherit)
            environment |= {SECRET + name: os.environ[name] for name in launch.secrets}
            mark = {driver_processes.MARK: str(self._lock_file(study_id))}
            with folder_lock:
                child = subprocess.Popen(
                    command(
                        ["-m", "service.driver", f"--study={study_id}", *self._options],
                        readable=[],
                        writable=[Path("/"), folder, *self._checkpoints],
                        hidden=self._hidden,
                        sockets=True,
                    ),
                    env={**environment, **mark, "DRIFTLINE_TOKEN": launch.token, "TMPDIR": str(folder)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock.fileno(), folder_lock.fileno()),
                    start_new_session=True,  # Ctrl-C is for the service, which then stops its drivers in order
                )
            lock.write(str(child.pid))
        self._children[study_id] = child
        self._ending.pop(study_id, None)
        _LOG.info("driver of study %s, attempt %d: process %d", study_id, launch.attempt, child.pid)

    def seen(self, study_id: str) -> Seen:
        """The study's driver, whichever service started it; if it failed, with the last line of its log."""
        self._reap(study_id)
        if self._pid(study_id) is not None:
            return Seen(True)
        child = self._children.get(study_id)
        code = 0 if child is None else child.poll()
        if code is None:  # it has released its lock and is about to end
            return Seen(True)
        if code == 0:
            return Seen(False)
        how = f"signal {signal_name(-code)}" if code < 0 else f"exit code {code}"
        last_line = _last_line(self._log_file(study_id))
        return Seen(False, f"its process has ended with {how}" + (f": {last_line}" if last_line else ""))

    def stop(self, study_id: str) -> None:
        """Makes the study's driver write its checkpoints and end; returns at once.

        A later call of any method kills a driver that does not end in time.
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
        """Kills the study's driver with all its processes; returns at once."""
        self._kill(study_id)

    def collect(self, study_ids: Collection[str]) -> None:
        """Stops drivers of studies that no longer exist."""
        for lock in self._logs.glob("*.lock"):
            if lock.stem not in study_ids:
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
        """Does nothing; drivers keep running."""

    def end(self, seconds: float) -> None:
        """Stops all drivers of this folder, whichever service started them, and waits until they have ended.

        Args:
            seconds: Time after which the drivers that are left are killed.
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
        """Reaps a child that has ended; kills a driver whose time to end is up."""
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
        """Id of the process that holds the study's lock; None if none does, 0 if the id is unknown."""
        try:
            with read(self._lock_file(study_id)) as lock:
                if acquire(lock, shared=True):  # two readers do not take each other for a driver
                    return None
                text = lock.read()
        except OSError:  # there was no driver, its file was deleted under it, or is a link now
            return driver_processes.driver(self._logs, study_id)
        return int(text) if text.isdecimal() else 0

    def _kill(self, study_id: str) -> None:
        """Sends SIGKILL to a driver and all its processes."""
        pid = self._pid(study_id)
        if pid:
            for send in (os.killpg, os.kill):  # a driver leads its own process group
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    send(pid, signal.SIGKILL)
        driver_processes.kill(self._logs, study_id)

    def _sweep(self, study_id: str) -> list[int]:
        """Kills the processes that a driver has left behind, and waits for them; returns those that are left."""
        deadline = time.monotonic() + _SWEEP_S
        while left := driver_processes.kill(self._logs, study_id):  # a dying process may have started another
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return left

    def _lock_file(self, study_id: str) -> Path:
        return self._logs / f"{study_id}.lock"

    def _log_file(self, study_id: str) -> Path:
        return self._logs / f"{study_id}.log"


def _signal(pid: int, number: signal.Signals) -> None:
    if pid > 0:  # 0 would signal this process's whole group
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _last_line(file: Path) -> str:
    """The last line of a log, cut to fit into a reason."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - 4096))
            lines = log.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    texts = [line.strip() for line in lines if line.strip()]
    return texts[-1][:300] if texts else ""
