"""The part of Ray's dashboard that the launcher `ray_jobs` needs: jobs, packages, nodes.

Ray's own client waits forever for answers. This one has time-outs, repeats requests whose connection broke, and raises
Driftline's errors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from driftline.backoff import pauses
from driftline.errors import Conflict, DriftlineError, NotFound, Unavailable

TIMEOUT_S = 20.0
ATTEMPTS = 3
PAUSE_S = 0.3
LONGEST_PAUSE_S = 0.6
_TAIL = 64 * 1024


@dataclass(frozen=True)
class RayJob:
    """A Ray job.

    Attributes:
        id: Its submission id.
        status: PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED.
        message: Ray's message about it.
        exit_code: Exit code of its entrypoint; None while it runs, or if Ray does not know.
        began: When it was submitted, in milliseconds since 1970.
        metadata: The metadata given at submission.
    """

    id: str
    status: str
    message: str
    exit_code: int | None
    began: float
    metadata: Mapping[str, str]

    @property
    def alive(self) -> bool:
        """Whether it runs, or is about to."""
        return self.status in ("PENDING", "RUNNING")


class Dashboard:
    """Ray's dashboard over HTTP; may be used by several threads.

    Args:
        address: ``http://head:8265``.
        token: Ray's token; None where authentication is disabled.
        transport: Replaces the network in tests.
        sleep: Waits some seconds; tests pass their own.
    """

    def __init__(
        self,
        address: str,
        token: str | None,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address.rstrip("/")
        self._http = httpx.Client(
            base_url=self.address,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(TIMEOUT_S),
            transport=transport,
            trust_env=False,
        )
        self._sleep = sleep

    def close(self) -> None:
        """Closes all connections."""
        self._http.close()

    def ray_version(self) -> str:
        """The version of Ray that the cluster runs."""
        return str(self._ask("GET", "/api/version").json()["ray_version"])

    def jobs(self) -> list[RayJob]:
        """All jobs that were submitted and that Ray still knows."""
        return [_job(raw) for raw in self._ask("GET", "/api/jobs/").json() if raw.get("submission_id")]

    def job(self, submission_id: str) -> RayJob | None:
        """A job; None if Ray knows none with this id."""
        try:
            return _job(self._ask("GET", f"/api/jobs/{submission_id}").json())
        except NotFound:
            return None

    def submit(self, submission_id: str, body: Mapping[str, Any]) -> None:
        """Submits a job.

        Raises:
            Conflict: A job with this id exists.
        """
        try:
            self._ask("POST", "/api/jobs/", json={"submission_id": submission_id, **body}, timeout=60.0)
        except DriftlineError as error:
            if "already exists" in str(error):
                raise Conflict(f"job {submission_id} exists already") from error
            raise

    def stop(self, submission_id: str) -> None:
        """Asks a job to end; does nothing if it has ended or does not exist."""
        try:
            self._ask("POST", f"/api/jobs/{submission_id}/stop")
        except NotFound:
            return

    def delete(self, submission_id: str) -> None:
        """Deletes a job that has ended."""
        try:
            self._ask("DELETE", f"/api/jobs/{submission_id}")
        except NotFound:
            return

    def tail(self, submission_id: str, lines: int) -> list[str]:
        """The last lines of a job's output that are not empty; none if Ray cannot give the output."""
        try:
            text = str(self._ask("GET", f"/api/jobs/{submission_id}/logs").json().get("logs") or "")
        except DriftlineError:
            return []
        tail = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in text[-_TAIL:].splitlines()]
        return [line for line in tail if line][-lines:]

    def nodes(self) -> list[Mapping[str, float]]:
        """Total resources of each living node: CPU, GPU, ..."""
        params = {"detail": "1", "limit": "10000"}
        answer = self._ask("GET", "/api/v0/nodes", params=params).json()
        rows = answer["data"]["result"]["result"]
        return [row.get("resources_total") or {} for row in rows if row.get("state") == "ALIVE"]

    def has_package(self, name: str) -> bool:
        """Whether the cluster has this package; it is then kept for some minutes."""
        try:
            self._ask("GET", f"/api/packages/gcs/{name}")
        except NotFound:
            return False
        return True

    def put_package(self, name: str, content: bytes) -> None:
        """Uploads a package to the cluster."""
        self._ask("PUT", f"/api/packages/gcs/{name}", content=content, timeout=120.0)

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        for attempt, pause in enumerate(pauses(PAUSE_S, LONGEST_PAUSE_S), 1):
            try:
                answer = self._http.request(method, path, **options)
                break
            except httpx.TransportError as error:
                if attempt == ATTEMPTS:
                    text = f"{error}" or type(error).__name__
                    raise Unavailable(f"Ray's dashboard at {self.address} must answer, got: {text}") from error
                self._sleep(pause)
        if answer.is_success:
            return answer
        lines = answer.text.strip().splitlines()
        last = lines[-1][:300] if lines else answer.reason_phrase
        if answer.status_code == 404:
            raise NotFound(f"Ray has nothing at {path}: {last}")
        if answer.status_code in (401, 403):
            raise Unavailable(
                f"Ray's dashboard at {self.address} refuses the token ({answer.status_code}): set auth and token_file "
                "of the launcher, or RAY_AUTH_TOKEN"
            )
        raise Unavailable(f"Ray's dashboard at {self.address} answered {answer.status_code} to {method} {path}: {last}")


def _job(raw: Mapping[str, Any]) -> RayJob:
    return RayJob(
        id=str(raw["submission_id"]),
        status=str(raw["status"]),
        message=str(raw.get("message") or ""),
        exit_code=raw.get("driver_exit_code"),
        began=float(raw.get("start_time") or 0.0),
        metadata=raw.get("metadata") or {},
    )
