"""What the scheduler asks of a launcher: to start a study's driver somewhere, to see how it is, to stop it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from driftline.study.validation import Section
from trainers import Registry


@dataclass(frozen=True)
class Launch:
    """A driver that is to be started.

    Attributes:
        study_id: The study it is to drive.
        name: The study's name, as people know it.
        project: The project the study belongs to.
        token: The driver's bearer token, good for this study alone.
        attempt: The attempt it is expected to acquire; with the study's id a name for this start, so that starting
            twice under one name starts one driver.
        cpus: CPU cores that a pack needs, above 0.
        gpus: GPUs that a pack needs, a share below 1; None takes one where there is one ("auto").
    """

    study_id: str
    name: str
    project: str
    token: str
    attempt: int
    cpus: float = 1.0
    gpus: float | None = None


@dataclass(frozen=True)
class Seen:
    """A driver as its launcher sees it.

    Attributes:
        alive: Whether it runs, or is about to.
        reason: Why it is not, or why it does not come up yet, for people ("" when there is nothing to say).
        hopeless: Whether another start would end in the same way (an image that cannot be pulled, a quota that does
            not allow it): the study then fails at once with the reason.
        waiting: Whether it waits, alive, in a queue outside of this service for its turn, its first or another one: it
            may take as long as it takes, and whoever was put back there is not lost.
    """

    alive: bool
    reason: str = ""
    hopeless: bool = False
    waiting: bool = False


class Launcher(Protocol):
    """Starts and stops drivers: as processes, as Ray jobs, as RayJobs on Kubernetes.

    Launchers are derived from this class, which has the defaults of what is optional.

    All methods may be called again at any time, by this process or by another one after a restart, and then change
    nothing that is as it should be. What goes wrong raises `driftline.errors.DriftlineError`.

    Attributes:
        own_cluster: Every study has a Ray cluster of its own, so that studies do not wait for one another.
        start_seconds: How long a driver may take until it acquires its study.
    """

    own_cluster: bool = False
    start_seconds: float = 600.0

    @abstractmethod
    def start(self, launch: Launch) -> None:
        """Starts a driver; nothing happens when it runs."""

    @abstractmethod
    def seen(self, study_id: str) -> Seen:
        """The study's driver as it is now; not alive when there is none."""

    @abstractmethod
    def stop(self, study_id: str) -> None:
        """Ends the study's driver and frees what it used; nothing happens when there is none."""

    @abstractmethod
    def kill(self, study_id: str) -> None:
        """Ends the study's driver at once with all its processes: it hangs, and writes no checkpoints any more.

        Comes back at once, and may be called until `seen` says that nothing of the driver is alive.
        """

    @abstractmethod
    def collect(self, known: Collection[str]) -> None:
        """Ends whatever runs, or is kept, for studies that no longer exist or were cancelled.

        Args:
            known: Ids of all other studies.
        """

    def forget(self, study_id: str) -> None:
        """Removes what is kept of a study that was deleted, such as logs; nothing of its driver is alive."""
        del study_id

    @abstractmethod
    def close(self) -> None:
        """Lets go of connections; drivers run on."""

    def end(self, seconds: float) -> None:
        """Ends for good together with the API: drivers that need this process stop within so many seconds.

        Args:
            seconds: How long they may take to write their checkpoints.
        """
        del seconds
        self.close()


class LauncherModule(Protocol):
    """A module in service/launchers, or one that an entry point names. What has a value here is optional.

    Attributes:
        Config: Its settings, the keys of DRIFTLINE_LAUNCHER_CONFIG.
        ON_THIS_MACHINE: Whether drivers are processes of this machine: the service then writes files that only its
            owner reads.
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
    """Every launcher, by name, those of other packages, too; a module is imported when it is asked for."""
    own = ("local", "ray_jobs", "kubernetes")
    return Registry("service.launchers", "service.launchers.base.LauncherModule", "launcher", names=own)
