"""`Client` runs studies in a service if it has an address, otherwise in this process, with the same code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx

from driftline.client.environment import environment
from driftline.sdk.job import Job
from driftline.sdk.remote import RemoteStudies
from driftline.sdk.studies import Studies, local_studies, require_study
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy
from driftline.wire.records import StudyRecord


class Client:
    """Submits studies and finds them again.

    Args:
        url: Address of a service; DRIFTLINE_URL by default. Without either, studies run in this process.
        token: Bearer token; DRIFTLINE_TOKEN by default.
        out: For local studies: the folder in which each study has a folder of its name; DRIFTLINE_OUT or "out" by
            default.
        transport: Replaces the network in your tests: `driftline.OfflineService`, or an `httpx.MockTransport`.
        on_wait: For a service: called with its address, in another thread, when an answer takes longer than 2 seconds;
            at most once. Requests are repeated for up to 15 seconds in any case.

    Attributes:
        local: Whether studies run in this process.

    Raises:
        InvalidSpec: The address or the token is invalid.

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
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        address = url or environment().url
        self.local = address is None and transport is None
        self._studies: Studies
        if self.local:
            self._studies = local_studies(out)
        else:
            self._studies = RemoteStudies(
                address or "http://driftline", token or environment().token, transport=transport, on_wait=on_wait
            )

    def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> Job:
        """Submits a study; a local one starts in this process.

        Args:
            study: What to run.
            key: For a service: the same key again returns the study submitted with it before.
            out: For local studies: the study's folder; by default one of its name in the client's folder.

        Returns:
            The job. Submitting the same study to the same folder again continues it; a finished study stays finished.

        Raises:
            InvalidSpec: The study is invalid; the message names the key. Or the folder, or `key`, is another study's.
            Conflict: Another process works in the folder, or its study was cancelled.
            QuotaExceeded: The project would exceed its quota.
        """
        return self._studies.submit(require_study(study), key, out=out)

    def validate(self, study: Study, *, estimate: bool = True) -> CheckedStudy:
        """Checks a study in full and estimates its cost; starts nothing.

        A service knows trials, packs and rounds only. Without a service, two processes on this computer train for
        about 5 seconds.

        Args:
            study: The study.
            estimate: Whether to estimate the cost as well.

        Returns:
            The canonical form, with warnings about what is probably unintended, and the estimate.

        Raises:
            InvalidSpec: The study is invalid; the message names the key.
        """
        return self._studies.validate(require_study(study), estimate=estimate)

    def job(self, study: str) -> Job:
        """Finds a study that was submitted before.

        While another process runs a local study, its job only reads: `Job.wait`, logs, trials, curves, frontier.

        Args:
            study: Its id, or its name (the newest of that name); for local studies, the name of its folder.

        Raises:
            NotFound: No such study; the message names the existing ones.
        """
        return self._studies.job(study)

    def jobs(self) -> list[Job]:
        """All studies, newest first."""
        return self._studies.jobs()

    def records(self) -> list[StudyRecord]:
        """The present records of all studies, newest first."""
        return self._studies.records()

    def owners(self) -> dict[str, str]:
        """Study id to the name of the token that submitted the study; empty for local studies."""
        return self._studies.owners()

    def delete(self, study: str) -> None:
        """Deletes a study with everything that belongs to it; see `Job.delete`.

        Args:
            study: Its id, or its name (the newest of that name).

        Raises:
            NotFound: No such study; the message names those that exist.
            Conflict: The study runs or waits to run, or it is local.
        """
        self.job(study).delete()

    def close(self) -> None:
        """Closes the connection; local studies stop cleanly, those of a service continue."""
        self._studies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
