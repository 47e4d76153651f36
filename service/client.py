"""The HTTP client's core: what the SDK, the command line and the driver speak to a service with.

Every request may be sent twice without harm: reading changes nothing, what a driver writes is idempotent, and a new
study carries an idempotency key. So a request that finds no service, or an overloaded one, is sent again with growing
pauses until the client's patience ends.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from service.errors import DriftlineError, Unavailable, from_problem
from service.schemas.curves import CurvesPage
from service.schemas.protocol import (
    Acquire,
    CreateTrials,
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
    TrialResult,
)
from service.schemas.records import Event, StudyPage, StudyRecord, TrialPage, TrialRecord

PAUSE_S = 0.1
"""Seconds before the second attempt; each pause is twice the last (at most `LONGEST_PAUSE_S`), less some by chance."""

LONGEST_PAUSE_S = 5.0
SILENCE_S = 45.0
"""A stream that is silent for so long is taken for dead; a service sends a heartbeat every 15 seconds."""

_AGAIN = frozenset({429, 502, 503, 504})
_TRIALS_AT_ONCE = 50
_Model = TypeVar("_Model", bound=BaseModel)


class ApiClient:
    """A connection to a service; may be used by several threads.

    Args:
        url: Address of the service: ``http://host:port``.
        token: Bearer token; None sends none.
        socket: Path of a unix socket over which the service is reached; `url` then only names it.
        transport: Instead of the network, for tests: `httpx.MockTransport`, or any synchronous transport.
        timeout_s: Seconds to wait for an answer.
        patience_s: Seconds during which a request that cannot be answered for now is sent again.
        sleep: Waits some seconds; tests pass their own.
    """

    def __init__(
        self,
        url: str = "http://driftline",
        token: str | None = None,
        *,
        socket: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 15.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        if transport is None and socket is not None:
            transport = httpx.HTTPTransport(uds=str(socket))
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(timeout_s),
            transport=transport,
            trust_env=transport is None,
        )
        self._patience_s = patience_s
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self._http.close()

    # ---- studies, as their owner sees them

    def create(self, study: Mapping[str, Any], key: str | None = None) -> StudyRecord:
        """Submits a study.

        Args:
            study: The study's document.
            key: The same key again gives the study made before, instead of another one; by default a fresh one.

        Raises:
            InvalidSpec: The study cannot be right, or the key was used for another one.
        """
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return self._post("/v1/studies", study, StudyRecord, headers=headers)

    def validate(self, study: Mapping[str, Any]) -> dict[str, Any]:
        """Checks a study without storing it; returns its canonical ``spec`` and its ``fingerprint``.

        Raises:
            InvalidSpec: The study cannot be right.
        """
        answer = self._request("POST", "/v1/studies", content=json.dumps(study), params={"validate_only": "true"})
        checked: dict[str, Any] = answer.json()
        return checked

    def studies(self) -> list[StudyRecord]:
        """All studies, newest first."""
        return [study for page in self._pages("/v1/studies", {}, StudyPage) for study in page.studies]

    def study(self, study_id: str) -> StudyRecord:
        """The study of this id.

        Raises:
            NotFound: No such study.
        """
        return self._get(_path(study_id), StudyRecord)

    def pause(self, study_id: str) -> StudyRecord:
        """Asks for a stop with checkpoints."""
        return self._post(_path(study_id, ":pause"), None, StudyRecord)

    def resume(self, study_id: str) -> StudyRecord:
        """Goes on with a paused or failed study."""
        return self._post(_path(study_id, ":resume"), None, StudyRecord)

    def cancel(self, study_id: str) -> StudyRecord:
        """Ends a study for good."""
        return self._post(_path(study_id, ":cancel"), None, StudyRecord)

    def trials(
        self, study_id: str, *, label: str | None = None, phase: str | None = None, state: str | None = None
    ) -> list[TrialRecord]:
        """The study's trials in the order label, phase (search before front), number; all, or those that fit."""
        asked = {"label": label, "phase": phase, "state": state, "page_size": "1000"}
        params = {name: value for name, value in asked.items() if value is not None}
        return [trial for page in self._pages(_path(study_id, "/trials"), params, TrialPage) for trial in page.trials]

    def curves(self, study_id: str, trials: Sequence[str] = ()) -> dict[str, dict[str, list[Any]]]:
        """Curves by trial id, one list a metric; of all trials unless some are named."""
        found: dict[str, dict[str, list[Any]]] = {}
        path = _path(study_id, "/curves")
        if not trials:
            for page in self._pages(path, {}, CurvesPage):
                found |= page.curves
        for start in range(0, len(trials), _TRIALS_AT_ONCE):
            some = trials[start : start + _TRIALS_AT_ONCE]
            found |= self._get(path, CurvesPage, params=[("trial", trial) for trial in some]).curves
        return found

    def frontier(self, study_id: str) -> dict[str, Any]:
        """The frontiers of all labels, as far as the study has come."""
        answer: dict[str, Any] = self._request("GET", _path(study_id, "/frontier")).json()
        return answer

    def compare(self, study_id: str, first: str, second: str) -> dict[str, Any]:
        """Two labels at equal budgets, paired over seeds."""
        params = {"a": first, "b": second}
        answer: dict[str, Any] = self._request("GET", _path(study_id, "/compare"), params=params).json()
        return answer

    def events(self, study_id: str, after: int = 0) -> Iterator[Event]:
        """What happens to a study, from its beginning or after an event, until it has finished.

        A broken connection is taken up again where it broke.

        Raises:
            Unavailable: The service stayed away for longer than the client's patience.
        """
        deadline: float | None = None
        pauses = _pauses()
        while True:
            try:
                for event in self._stream(study_id, after):
                    if event is None:
                        return
                    after, deadline, pauses = event.id, None, _pauses()
                    yield event
            except httpx.TransportError as error:
                last = Unavailable(f"no answer from {self.url}: {error or type(error).__name__}")
            except Unavailable as error:
                last = error
            else:
                last = Unavailable(f"the stream of events from {self.url} ended too early")
            deadline = deadline or time.monotonic() + self._patience_s
            if time.monotonic() >= deadline:
                raise last
            self._sleep(next(pauses))

    def ready(self) -> bool:
        """Whether the service answers and its database does; asks once."""
        try:
            return self._http.get("/readyz", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    # ---- the driver's side

    def acquire(self, study_id: str, holder: str) -> Lease:
        """Takes the study for a driver.

        Args:
            study_id: Its id.
            holder: Who asks, as `names.holder` says it.

        Raises:
            Conflict: Another driver holds it, or it is in no state to be driven.
        """
        return self._post(_path(study_id, "/driver:acquire"), Acquire(holder=holder), Lease)

    def heartbeat(self, study_id: str, attempt: int) -> Desired:
        """Renews the lease; returns what the study's owner wants.

        Raises:
            StaleDriver: Another driver has taken over.
        """
        path = _path(study_id, "/driver:heartbeat")
        return self._post(path, Heartbeat(attempt=attempt), HeartbeatAnswer).desired

    def create_trials(self, study_id: str, attempt: int, trials: Sequence[NewTrial]) -> list[TrialRecord]:
        """Creates trials; returns them in the order given, those that existed already as they are."""
        body = CreateTrials(attempt=attempt, trials=list(trials))
        return self._post(_path(study_id, "/trials"), body, TrialPage).trials

    def start_pack(self, study_id: str, attempt: int, pack: str, trials: Sequence[str]) -> list[TrialRecord]:
        """Marks trials as running in a pack; each one's attempt grows by 1."""
        body = StartPack(attempt=attempt, pack=pack, trials=list(trials))
        return self._post(_path(study_id, "/packs"), body, TrialPage).trials

    def report(self, study_id: str, report: Report) -> int:
        """Stores what a pack has reported since last time; returns the study's version."""
        return self._post(_path(study_id, "/reports"), report, Stored).version

    def finish(self, study_id: str, attempt: int, results: Sequence[TrialResult]) -> int:
        """Stores how trials ended; returns the study's version."""
        return self._post(_path(study_id, "/results"), Results(attempt=attempt, results=list(results)), Stored).version

    def release(self, study_id: str, attempt: int, state: Released, reason: str = "") -> StudyRecord:
        """Lets go of the study; returns it as it is afterwards."""
        body = Release(attempt=attempt, state=state, reason=reason)
        return self._post(_path(study_id, "/driver:release"), body, StudyRecord)

    # ---- how requests are sent

    def _get(self, path: str, model: type[_Model], **options: Any) -> _Model:
        return model.model_validate_json(self._request("GET", path, **options).content)

    def _post(self, path: str, body: object, model: type[_Model], **options: Any) -> _Model:
        content = (
            body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body) if body is not None else None
        )
        return model.model_validate_json(self._request("POST", path, content=content, **options).content)

    def _pages(self, path: str, params: Mapping[str, str], model: type[_Model]) -> Iterator[_Model]:
        token: str | None = None
        while True:
            page = self._get(path, model, params={**params, "page_token": token} if token else params)
            yield page
            token = getattr(page, "next_page_token", None)
            if token is None:
                return

    def _request(self, method: str, path: str, *, content: str | None = None, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if content is not None:
            headers["Content-Type"] = "application/json"
        deadline = time.monotonic() + self._patience_s
        for pause in _pauses():
            try:
                answer = self._http.request(method, path, content=content, headers=headers, **options)
            except httpx.TransportError as error:
                last: DriftlineError = Unavailable(f"no answer from {self.url}: {error or type(error).__name__}")
                last.__cause__ = error
            else:
                if answer.is_success:
                    return answer
                last = _error(answer)
                if answer.status_code not in _AGAIN:
                    raise last
            if time.monotonic() + pause >= deadline:
                raise last
            self._sleep(pause)
        raise AssertionError("pauses never end")

    def _stream(self, study_id: str, after: int) -> Iterator[Event | None]:
        """Events of one connection; None when the service says that there will be no more."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        timeout = httpx.Timeout(SILENCE_S, connect=10.0)
        with self._http.stream("GET", _path(study_id, "/events"), headers=headers, timeout=timeout) as answer:
            if not answer.is_success:
                answer.read()
                raise _error(answer)
            name, data = "message", ""
            for line in answer.iter_lines():
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data":
                    data += value.removeprefix(" ")
                elif not line:
                    if name == "end":
                        yield None
                        return
                    if data:
                        yield Event.model_validate_json(data)
                    name, data = "message", ""


def _path(study_id: str, rest: str = "") -> str:
    return f"/v1/studies/{quote(study_id, safe='')}{rest}"


def _pauses() -> Iterator[float]:
    pause = PAUSE_S
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _error(answer: httpx.Response) -> DriftlineError:
    try:
        body = answer.json()
    except ValueError:
        body = {"title": answer.reason_phrase}
    return from_problem(answer.status_code, body if isinstance(body, dict) else {})
