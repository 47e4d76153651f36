"""Submits studies to a service and finds them again."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import httpx

from driftline.client.api_client import ApiClient
from driftline.errors import NotFound
from driftline.sdk.job import Job
from driftline.study.program_sources import served
from driftline.study.spec import Study
from driftline.wire.budgets import CheckedStudy
from driftline.wire.records import StudyRecord

_ID = re.compile("[0-9a-z]{26}")
_SHOWN = 20


class RemoteStudies:
    """The studies of a service.

    Args:
        url: Its address: ``https://driftline.example``.
        token: Bearer token; None sends none.
        transport: Replaces the network in tests.
        on_wait: As in `driftline.client.connection.Connection`.

    While the service is unavailable or overloaded, requests are repeated for up to 15 seconds, as described in
    `driftline.client.connection`. Submitting sends an idempotency key, so that it creates a single study.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        self._api = ApiClient(url, token, transport=transport, on_wait=on_wait)

    def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> Job:
        """Submits a study; see `driftline.Client.submit`. `out` is ignored, because the service keeps the files."""
        document, archive = served(study)
        if archive is not None:
            with contextlib.suppress(NotFound):  # an older service, which refuses the study itself
                self._api.put_archive(document["program"]["archive"], archive)
        return Job(self._api, self._api.create(document, key).id)

    def validate(self, study: Study, *, estimate: bool = True) -> CheckedStudy:
        """Asks the service to check a study; see `driftline.Client.validate`."""
        checked = self._api.validate(served(study)[0])
        return checked if estimate else checked.model_copy(update={"estimate": None})

    def job(self, study: str) -> Job:
        """Finds a study that was submitted before; see `driftline.Client.job`."""
        if _ID.fullmatch(study):
            with contextlib.suppress(NotFound):
                return Job(self._api, self._api.study(study).id)
        records = self._api.studies()
        for record in records:
            if study in (record.id, record.name):
                return Job(self._api, record.id)
        names = list(dict.fromkeys(record.name for record in records))
        listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "") or "none yet"
        raise NotFound(f"no study {study!r} (have: {listed})")

    def jobs(self) -> list[Job]:
        """All studies, newest first."""
        return [Job(self._api, record.id) for record in self._api.studies()]

    def records(self) -> list[StudyRecord]:
        """The present records of all studies, newest first."""
        return self._api.studies()

    def owners(self) -> dict[str, str]:
        """Study id to the name of the token that submitted the study."""
        return self._api.owners()

    def close(self) -> None:
        """Closes the connection; studies continue."""
        self._api.close()
