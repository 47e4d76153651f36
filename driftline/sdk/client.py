"""`Client`: a service elsewhere when there is one, this process when there is none; the same lines serve both."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from driftline.client.environment import environment
from driftline.sdk.job import Job
from driftline.sdk.remote import RemoteStudies
from driftline.sdk.studies import Studies, local_studies
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy
from driftline.wire.records import StudyRecord


class Client:
    """Submits studies and finds them again.

    Args:
        url: Address of a service; DRIFTLINE_URL by default. Without either, studies run in this process.
        token: Bearer token; DRIFTLINE_TOKEN by default.
        out: Local studies: folder under which each study keeps its files in a folder of its name; DRIFTLINE_OUT or
            "out" by default.
        transport: Replaces the network in your tests: `driftline.OfflineService`, or an `httpx.MockTransport`.

    Attributes:
        local: Whether studies run in this process.

    Examples:
        >>> from driftline import Client, Study
        >>> with Client("http://127.0.0.1:8080", token="...") as client:  # doctest: +SKIP
        ...     job = client.submit(Study.from_yaml("study.yaml")).wait(progress=True)
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        out: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        address = url or environment().url
        self.local = address is None and transport is None
        self._studies: Studies
        if self.local:
            self._studies = local_studies(out)
        else:
            self._studies = RemoteStudies(
                address or "http://driftline", token or environment().token, transport=transport
            )

    def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> Job:
        """Submits a study; a local one starts in this process.

        Args:
            study: What to run.
            key: With a service: the same key again gives the study that was submitted under it before.
            out: Local studies: the study's folder; by default one of its name under the client's.

        Returns:
            The job. The same study into the same folder goes on where it stopped, or is finished at once.

        Raises:
            InvalidSpec: The study is invalid; the message names the key.
            Conflict: The folder holds another study.
        """
        return self._studies.submit(study, key, out=out)

    def validate(self, study: Study, *, estimate: bool = True) -> CheckedStudy:
        """Checks a study in full and says what it will cost; starts nothing.

        A service checks it, and estimates from what earlier studies of the project measured. Without one, a process
        on this computer trains for 5 seconds at most.

        Args:
            study: What would be run.
            estimate: Whether to estimate the cost as well.

        Returns:
            The canonical form, with remarks on what is probably not meant, and the estimate.

        Raises:
            InvalidSpec: The study is invalid; the message names the key.
        """
        return self._studies.validate(study, estimate=estimate)

    def job(self, study: str) -> Job:
        """A study that was submitted before.

        Args:
            study: Its id, or its name (the newest of that name); local: the name of its folder under the client's.

        Raises:
            NotFound: There is none; the message names those there are.
        """
        return self._studies.job(study)

    def jobs(self) -> list[Job]:
        """All studies, newest first."""
        return self._studies.jobs()

    def records(self) -> list[StudyRecord]:
        """All studies as they are stored now, newest first."""
        return self._studies.records()

    def delete(self, study: str) -> None:
        """Deletes a study with everything that belongs to it; see `Job.delete`.

        Args:
            study: Its id, or its name (the newest of that name).

        Raises:
            NotFound: There is none; the message names those there are.
            Conflict: It runs, or is about to.
        """
        self.job(study).delete()

    def close(self) -> None:
        """Closes the connection; local studies stop cleanly, those of a service go on."""
        self._studies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
