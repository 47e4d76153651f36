"""A fake service for your tests: studies succeed at once, with a result that you give.

from driftline import Client, Study
from driftline.sdk.offline import OfflineService

service = OfflineService(frontier)                 # a stored frontier.json, or any document like it
client = Client(transport=service)
job = client.submit(Study.from_yaml("study.yaml")).wait()
assert service.submitted[0]["name"] == "my-study"

`OfflineService` does not run the service's own app, which needs more than `pip install driftline`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

from driftline.errors import PROBLEM_MEDIA_TYPE, Conflict, DriftlineError, InvalidSpec, NotFound, problem
from driftline.results.comparison import compare
from driftline.study.all_errors import study_of
from driftline.wire.budgets import CheckedStudy
from driftline.wire.ids import new_study_id
from driftline.wire.logs import LogPage
from driftline.wire.records import STUDY_DELETABLE, Event, StudyPage, StudyRecord, StudyState, TrialPage

_PATH = re.compile(r"/v1/studies(?:/(?P<study>[0-9a-z]+)(?::(?P<verb>[a-z]+)|/(?P<part>[a-z]+))?)?")
_INTENTS: dict[str, StudyState] = {
    "pause": "PAUSED",
    "resume": "PENDING",
    "cancel": "CANCELLED",
    "extend": "PENDING",
    "retry": "PENDING",
}


class OfflineService(httpx.BaseTransport):
    """Answers like a Driftline service, from memory; pass it to `Client(transport=...)`.

    Studies are checked as usual but do not run: they are in the state `ends` at once.

    Args:
        frontier: The result of every study: a document like frontier.json.
        ends: The state of a submitted or resumed study.
        reason: Why it is in that state.

    Attributes:
        submitted: The documents of the submitted studies, in order.
    """

    def __init__(self, frontier: Mapping[str, Any], *, ends: StudyState = "SUCCEEDED", reason: str = "") -> None:
        self._frontier = dict(frontier)
        self._ends = ends
        self._reason = reason
        self._studies: dict[str, StudyRecord] = {}
        self._keys: dict[str, str] = {}
        self.submitted: list[dict[str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers a request."""
        try:
            return self._answer(request)
        except DriftlineError as error:
            body = problem(error)
            return httpx.Response(body["status"], json=body, headers={"Content-Type": PROBLEM_MEDIA_TYPE})

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/readyz":
            return httpx.Response(200, json={"status": "ok"})
        match = _PATH.fullmatch(path)
        if match is None:
            raise NotFound(f"the offline service does not support {request.method} {path}")
        if match["study"] is None:
            return self._create(request) if request.method == "POST" else self._list()
        record = self._studies.get(match["study"])
        if record is None:
            raise NotFound(f"no study {match['study']!r}")
        if match["verb"] is not None:
            return self._intend(record, match["verb"])
        if request.method == "DELETE":
            return self._delete(record)
        return self._part(record, match["part"], request)

    def _create(self, request: httpx.Request) -> httpx.Response:
        document = json.loads(request.content)
        study = study_of(document)
        remarks = study.check()
        if request.url.params.get("validate_only") == "true":
            spec, mark, outlook = study.to_json(), study.fingerprint(), study.outlook()
            return _json(CheckedStudy(spec=spec, fingerprint=mark, remarks=remarks, outlook=outlook))
        key = request.headers.get("Idempotency-Key", "")
        if key in self._keys:
            return _json(self._studies[self._keys[key]])
        self.submitted.append(document)
        now = datetime.now(UTC)
        record = StudyRecord(
            id=new_study_id(),
            name=study.name,
            state=self._ends,
            reason=self._reason,
            spec=study.to_json(),
            fingerprint=study.fingerprint(),
            created_at=now,
            updated_at=now,
        )
        self._studies[record.id] = record
        self._keys[key] = record.id
        return _json(record)

    def _list(self) -> httpx.Response:
        return _json(StudyPage(studies=list(reversed(self._studies.values()))))

    def _intend(self, record: StudyRecord, verb: str) -> httpx.Response:
        if verb not in _INTENTS:
            raise NotFound(f"the offline service does not support :{verb}")
        target = _INTENTS[verb]
        if record.finished and verb in ("pause", "cancel") and record.state != target:
            raise Conflict(f"{verb} needs a study that is not finished, got a {record.state.lower()} one: {record.id}")
        if verb == "retry" and record.state != "FAILED":
            raise Conflict(f"no trial of study {record.id} has failed: there is nothing to retry")
        state = self._ends if target == "PENDING" else target
        self._studies[record.id] = record.model_copy(update={"state": state})
        return _json(self._studies[record.id])

    def _delete(self, record: StudyRecord) -> httpx.Response:
        if record.state not in STUDY_DELETABLE:
            raise Conflict(f"a study that is {record.state.lower()} cannot be deleted: {record.id}; cancel it first")
        del self._studies[record.id]
        self._keys = {key: study_id for key, study_id in self._keys.items() if study_id != record.id}
        return httpx.Response(204)

    def _part(self, record: StudyRecord, part: str | None, request: httpx.Request) -> httpx.Response:
        match part:
            case None:
                return _json(record)
            case "frontier":
                return httpx.Response(200, json=self._frontier)
            case "compare":
                params = request.url.params
                if not {"a", "b"} <= set(params):
                    raise InvalidSpec("a", "must be given")
                return httpx.Response(200, json=compare(self._frontier, params["a"], params["b"]))
            case "trials":
                return _json(TrialPage(trials=[]))
            case "curves":
                return httpx.Response(200, json={"curves": {}})
            case "logs":
                return _json(LogPage(lines=[]))
            case "events":
                return self._events(record)
        raise NotFound(f"the offline service does not support /{part}")

    def _events(self, record: StudyRecord) -> httpx.Response:
        event = Event(
            id=1,
            study_id=record.id,
            kind="state",
            data={"state": record.state, "reason": record.reason},
            created_at=record.created_at,
        )
        text = f"id: 1\nevent: state\ndata: {event.model_dump_json()}\n\nevent: end\ndata: {{}}\n\n"
        return httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})


def _json(record: Any) -> httpx.Response:
    return httpx.Response(200, content=record.model_dump_json(), headers={"Content-Type": "application/json"})
