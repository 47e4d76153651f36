"""The contract of launchers: they start a study's driver somewhere, observe it, and stop it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from driftline.study.validation import Section
from service.launchers.worker_pools import WorkerPools
from trainers import Registry


@dataclass(frozen=True)
class Launch:
    """A driver to start.

    Attributes:
        study_id: Id of its study.
        name: The study's name.
        project: The project the study belongs to.
        token: The driver's bearer token, valid for this study only.
        attempt: The attempt it is expected to acquire. Study and attempt name this start: starting twice under the same
            name starts one driver.
        cpus: CPU cores that a pack needs, above 0.
        gpus: GPUs that a pack needs, below 1 a share of one; None ("auto") uses one if there is one.
        nodes: How many different nodes a pack needs, each with these CPU cores and GPUs.
        pool: The pool of workers that the study names; None leaves it to the launcher.
        secrets: Names of the secrets of its program, which the service allows.
        image: Image of the workers that its program names, which the service allows; None is Driftline's own.
    """

    study_id: str
    name: str
    project: str
    token: str
    attempt: int
    cpus: float = 1.0
    gpus: float | None = None
    nodes: int = 1
    pool: str | None = None
    secrets: tuple[str, ...] = ()
    image: str | None = None


@dataclass(frozen=True)
class Seen:
    """A driver as its launcher sees it.

    Attributes:
        alive: Whether it runs, or is about to.
        reason: Why it is not alive, or has not come up yet; shown to users, "" if there is nothing to say.
        hopeless: Whether another start would fail in the same way (an image that cannot be pulled, a quota that is too
            small): the study then fails at once with this reason.
        waiting: Whether it waits, alive, in a queue outside of this service, for the first time or again. The wait has
            no limit, and a driver that was put back into the queue does not count as lost.
    """

    alive: bool
    reason: str = ""
    hopeless: bool = False
    waiting: bool = False


class Launcher(Protocol):
    """Starts and stops drivers: as processes, as Ray jobs, as RayJobs on Kubernetes.

    Launchers derive from this class, which has the defaults of optional members.

    All methods are idempotent: this process, or another one after a restart, may repeat any call at any time. Errors
    are raised as `driftline.errors.DriftlineError`.

    Attributes:
        own_cluster: Whether every study has its own Ray cluster, so that studies do not wait for one another.
        start_seconds: How long a driver may take to acquire its study.
        pools: The pools of workers that studies may name; without any, what a study names is ignored.
        secrets: Whether it gives `Launch.secrets` to workers, as variables whose names begin with
            `service.child_environment.SECRET`. Studies with secrets are refused otherwise.
        images: Whether its workers run in `Launch.image`. Studies with an image are refused otherwise.
    """

    own_cluster: bool = False
    start_seconds: float = 600.0
    pools: WorkerPools = WorkerPools()
    secrets: bool = False
    images: bool = False

    @abstractmethod
    def start(self, launch: Launch) -> None:
        """Starts a driver; does nothing if it is running."""

    @abstractmethod
    def seen(self, study_id: str) -> Seen:
        """The current status of the study's driver; not alive if there is none."""

    @abstractmethod
    def stop(self, study_id: str) -> None:
        """Ends the study's driver and frees its resources; does nothing if there is none."""

    @abstractmethod
    def kill(self, study_id: str) -> None:
        """Kills the study's driver, which hangs, with all its processes; they write no more checkpoints.

        Returns at once, and is called again until `seen` says that the driver is no longer alive.
        """

    @abstractmethod
    def collect(self, study_ids: Collection[str]) -> None:
        """Ends the drivers, and frees the resources, of studies that no longer exist or were cancelled.

        Args:
            study_ids: Ids of all other studies.
        """

    def forget(self, study_id: str) -> None:
        """Removes what the launcher keeps of a deleted study, such as logs; its drivers have ended."""
        del study_id

    @abstractmethod
    def close(self) -> None:
        """Closes connections; drivers keep running."""

    def end(self, seconds: float) -> None:
        """Shuts down with the API: drivers that need this process stop within this many seconds.

        Args:
            seconds: How long they may take to write their checkpoints.
        """
        del seconds
        self.close()


class LauncherModule(Protocol):
    """A module in service/launchers, or one that an entry point names. Members with a value here are optional.

    Attributes:
        Config: Its settings, the keys of DRIFTLINE_LAUNCHER_CONFIG.
        ON_THIS_MACHINE: Whether drivers are processes on this machine. If so, only the service's user can read the
            files that it writes.
    """

    Config: type[Section]
    ON_THIS_MACHINE: bool = False

    @abstractmethod
    def build(self, config: Any, *, url: str, checkpoints: str, logs: Path) -> Launcher:
        """The launcher of a service.

        Args:
            config: Its settings.
            url: Address of the service, as drivers reach it.
            checkpoints: Path or URL of the folder for checkpoints.
            logs: Folder for the drivers' logs.
        """


@cache
def launchers() -> Registry[LauncherModule]:
    """All launchers by name, including those of other packages; a module is imported on demand."""
    names = ("local", "ray_jobs", "kubernetes")
    return Registry("service.launchers", "service.launchers.base.LauncherModule", "launcher", names=names)
