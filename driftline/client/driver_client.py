"""Client for the driver of a study: the owner's requests, and the driver's own."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

import httpx

from driftline.client.api_client import ApiClient, study_path
from driftline.errors import Conflict, DriftlineError, Unauthorized, Unavailable
from driftline.wire.driver_messages import (
    CODE_HEADER,
    NONCE_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    Acquire,
    CreateTrials,
    DataUrls,
    Desired,
    Heartbeat,
    HeartbeatAnswer,
    Lease,
    NewTrial,
    Release,
    Released,
    Report,
    Results,
    StartPack,
    Stored,
    StorePlan,
    TrialResult,
)
from driftline.wire.logs import NewLine, NewLines, StoredLines
from driftline.wire.records import StudyPlan, StudyRecord, TrialPage, TrialRecord

_LOG = logging.getLogger(__name__)


class DriverClient(ApiClient):
    """A connection for the driver of a study; its token is valid for that study only.

    While an upgrade replaces the API's replicas, older replicas may reject the requests of a newer driver, or leave out
    fields that it needs. Their answers count as an outage of the API, except answers about the lease.

    No proxy of the environment is used: a driver runs beside the API, or in the same cluster.

    Once another driver has taken over, requests with an attempt raise `StaleDriver`; `send_logs` does only after the
    study has finished.

    Args:
        arguments: As for `Connection`.
        nonce: Random text that only this driver sends (see `NONCE_HEADER`), the same on all its connections.
        options: As for `Connection`.

    Attributes:
        protocol: Version of the messages that the API must know.
        nonce: As above.
        api_code: Digest of the code of the API that answered last; "" if it named none, None without an answer.
    """

    protocol: ClassVar[int] = PROTOCOL
    api_code: str | None = None
    _proxies = False
    _warned = False

    def __init__(self, *arguments: Any, nonce: str | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nonce = nonce or secrets.token_hex(16)
        self._http.headers[NONCE_HEADER] = self.nonce

    def acquire(self, study_id: str, holder: str) -> Lease:
        """Acquires the lease of the study.

        Args:
            study_id: Its id.
            holder: Name of the driver's process, from `driftline.wire.ids.holder`.

        Raises:
            Conflict: Another driver holds the study, or its state allows no driver.
        """
        return self._post(study_path(study_id, "/driver:acquire"), Acquire(holder=holder), Lease)

    def archive(self, study_id: str) -> bytes:
        """The packed files of the study's program.

        Raises:
            NotFound: The study has no program, or a program without files.
        """
        return self._request("GET", study_path(study_id, "/archive")).content

    def data_urls(self, study_id: str) -> list[str] | None:
        """What the URLs of the study's data must begin with; None for any."""
        return DataUrls.model_validate_json(self._request("GET", study_path(study_id, "/data-urls")).content).prefixes

    def heartbeat(self, study_id: str, attempt: int) -> Desired:
        """Renews the lease; returns what the study's owner wants the driver to do."""
        path = study_path(study_id, "/driver:heartbeat")
        return self._post(path, Heartbeat(attempt=attempt), HeartbeatAnswer).desired

    def store_plan(self, study_id: str, attempt: int, plan: StudyPlan, reason: str = "") -> StudyPlan:
        """Stores how samplers are asked and packs formed from now on, and the reason; returns the stored plan."""
        body = StorePlan(attempt=attempt, plan=plan, reason=reason)
        return self._post(study_path(study_id, "/plan"), body, StudyPlan)

    def create_trials(self, study_id: str, attempt: int, trials: Sequence[NewTrial]) -> list[TrialRecord]:
        """Creates trials; returns them in the given order, existing ones unchanged."""
        body = CreateTrials(attempt=attempt, trials=list(trials))
        return self._post(study_path(study_id, "/trials"), body, TrialPage).trials

    def start_pack(
        self, study_id: str, attempt: int, pack: str, trials: Sequence[str], gpus: float = 0.0
    ) -> list[TrialRecord]:
        """Marks trials as running in a pack with this number of GPUs, and increments the attempt of each."""
        body = StartPack(attempt=attempt, pack=pack, trials=list(trials), gpus=gpus)
        return self._post(study_path(study_id, "/packs"), body, TrialPage).trials

    def report(self, study_id: str, report: Report) -> Stored:
        """Stores new reports of a pack."""
        return self._post(study_path(study_id, "/reports"), report, Stored)

    def finish(self, study_id: str, attempt: int, results: Sequence[TrialResult]) -> Stored:
        """Stores how trials ended."""
        body = Results(attempt=attempt, results=list(results))
        return self._post(study_path(study_id, "/results"), body, Stored)

    def release(self, study_id: str, attempt: int, state: Released, reason: str = "") -> StudyRecord:
        """Releases the study; returns its new record."""
        body = Release(attempt=attempt, state=state, reason=reason)
        return self._post(study_path(study_id, "/driver:release"), body, StudyRecord)

    def send_logs(self, study_id: str, attempt: int, lines: Sequence[NewLine]) -> int:
        """Adds lines to the study's log; returns how many were new (0 if they were sent before)."""
        body = NewLines(attempt=attempt, lines=list(lines))
        return self._post(study_path(study_id, "/logs"), body, StoredLines).stored

    def _refusal(self, answer: httpx.Response) -> DriftlineError | None:
        error = super()._refusal(answer)
        self.api_code = answer.headers.get(CODE_HEADER, "")
        header = answer.headers.get(PROTOCOL_HEADER, "")
        protocol = int(header) if header.isdecimal() else 0
        final = isinstance(error, (Unauthorized, Conflict, Unavailable)) or "/driver:" in answer.request.url.path
        if protocol >= self.protocol or final:
            return error
        text = f"the API at {self.url} is older than this driver (protocol {protocol}, this driver has {self.protocol})"
        if self._patience_s and not self._warned:
            self._warned = True
            _LOG.warning("%s: waiting up to %.0f s for its upgrade", text, self._patience_s)
        return Unavailable(f"{text}: {error}" if error else text)
