"""Where a client's studies run: in a service (`driftline.sdk.remote`), or in this process (``driftline.local``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from driftline.errors import DriftlineError, InvalidSpec
from driftline.extras import optional_packages
from driftline.results.modelled_time import Time
from driftline.sdk.frontier import Frontier
from driftline.sdk.job import Job
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy
from driftline.wire.records import StudyRecord
from trainers import shown

LOCAL = "driftline.local"
"""Entry point group. Its one entry returns an `InProcessStudies` for an output folder; None is the default folder."""


class Studies(Protocol):
    """The interface between a client and the place where its studies run."""

    def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> Job:
        """Submits a study; see `driftline.Client.submit`."""

    def validate(self, study: Study, *, estimate: bool = True) -> CheckedStudy:
        """Checks a study; see `driftline.Client.validate`."""

    def job(self, study: str) -> Job:
        """Finds a study that was submitted before; see `driftline.Client.job`."""

    def jobs(self) -> list[Job]:
        """All studies, newest first."""

    def records(self) -> list[StudyRecord]:
        """The present records of all studies, newest first."""

    def owners(self) -> dict[str, str]:
        """Who submitted each study; see `driftline.Client.owners`."""
        ...

    def close(self) -> None:
        """Releases all resources."""


class InProcessStudies(Studies, Protocol):
    """Studies that run in this process, each in an output folder."""

    def frontier(self, folder: Path, quality: str | None, cost: str | Time | None) -> Frontier:
        """The frontiers in an output folder; see `driftline.frontier`."""

    def log_models(self, folder: Path, label: str | None, tell: Callable[[str], object]) -> list[str]:
        """Logs the models of an output folder; see `driftline.log_models`."""
        ...


def require_study(study: object) -> Study:
    """Returns `study` if it is a `Study`.

    Raises:
        InvalidSpec: The value is something else, such as the path of a file.
    """
    if not isinstance(study, Study):
        rule = "must be a Study: Study.from_yaml(path) reads a file, Study(**keys) takes a mapping"
        raise InvalidSpec("study", f"{rule}, got {shown(study)}")
    return study


def local_studies(out: str | Path | None = None) -> InProcessStudies:
    """Studies in this process, provided by the entry point group ``driftline.local``.

    Args:
        out: Folder under which each study keeps its files; DRIFTLINE_OUT or "out" by default.

    Raises:
        DriftlineError: No installed package can run studies, or one that it needs is not installed.
    """
    points = sorted(entry_points(group=LOCAL), key=lambda point: point.name)
    if not points:
        raise DriftlineError(
            f"no package installed here can run studies (entry point group {LOCAL}): install driftline again, "
            "or set DRIFTLINE_URL to the address of a service"
        )
    with optional_packages("set DRIFTLINE_URL to the address of a service"):
        studies: InProcessStudies = points[0].load()(out)
    return studies
