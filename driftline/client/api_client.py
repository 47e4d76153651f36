"""Client for the owner of studies, used by the SDK and the command line."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from driftline.client.connection import SILENCE_S, Connection, failure
from driftline.errors import NotFound, Unavailable
from driftline.study.validation import raise_invalid
from driftline.wire.budgets import CheckedStudy, Extension, Retry
from driftline.wire.curve_columns import CurvesPage
from driftline.wire.logs import LogLine, LogPage
from driftline.wire.records import Event, StudyPage, StudyRecord, TrialPage, TrialRecord

_TRIALS_AT_ONCE = 50


class ApiClient(Connection):
    """A connection for the owner of studies; thread-safe. Arguments as in `Connection`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unanswered: dict[str, str] = {}  # keys of studies that may exist, by their documents

    def create(self, study: Mapping[str, Any], key: str | None = None) -> StudyRecord:
        """Submits a study.

        Args:
            study: The study's document.
            key: Idempotency key: the same key again returns the study created with it. By default a fresh
                key, or the earlier key if an earlier request to create this study got no answer.

        Raises:
            InvalidSpec: The study is invalid, or the key was used for another study.
            Unavailable: No answer came. If the study may exist, `details["key"]` is its key.
        """
        body = json.dumps(study, sort_keys=True)
        key = key or self._unanswered.get(body) or str(uuid.uuid4())
        try:
            record = self._post("/v1/studies", study, StudyRecord, headers={"Idempotency-Key": key})
        except Unavailable as error:
            if error.details.get("arrived"):
                self._unanswered[body] = error.details["key"] = key
                rule = f"the study may exist: submit it again with the key {key}, which makes no second one"
                error.message = f"{error.message}; {rule}"
            raise
        self._unanswered.pop(body, None)
        return record

    def put_archive(self, digest: str, archive: bytes) -> None:
        """Sends the packed files of a program, for studies that name their digest; may be repeated.

        Raises:
            InvalidSpec: The service runs no programs.
            QuotaExceeded: The archives of the project would exceed its quota.
            NotFound: The service is too old for programs.
        """
        headers = {"Content-Type": "application/octet-stream"}
        self._request("PUT", f"/v1/archives/{digest}", content=archive, headers=headers)

    def validate(self, study: Mapping[str, Any]) -> CheckedStudy:
        """Checks a study without storing it, and estimates its cost.

        Raises:
            InvalidSpec: The study is invalid.
        """
        return self._post("/v1/studies", study, CheckedStudy, params={"validate_only": "true"})

    def studies(self) -> list[StudyRecord]:
        """All studies, newest first."""
        return [study for page in self._pages("/v1/studies", {}, StudyPage) for study in page.studies]

    def owners(self) -> dict[str, str]:
        """Study id to the name of the token that submitted the study, where it is known."""
        pages = self._pages("/v1/studies", {"owners": "true"}, StudyPage)
        return {study: name for page in pages for study, name in page.owners.items()}

    def study(self, study_id: str) -> StudyRecord:
        """The study of this id.

        Raises:
            NotFound: No such study.
        """
        return self._get(study_path(study_id), StudyRecord)

    def pause(self, study_id: str) -> StudyRecord:
        """Asks the study to save checkpoints and stop.

        Raises:
            NotFound: No such study.
            Conflict: The study has finished, or is being cancelled.
        """
        return self._post(study_path(study_id, ":pause"), None, StudyRecord)

    def resume(self, study_id: str) -> StudyRecord:
        """Continues a paused or failed study.

        Raises:
            NotFound: No such study.
            Conflict: The study has succeeded or was cancelled.
        """
        return self._post(study_path(study_id, ":resume"), None, StudyRecord)

    def cancel(self, study_id: str) -> StudyRecord:
        """Cancels a study for good.

        Raises:
            NotFound: No such study.
            Conflict: The study has succeeded or failed.
        """
        return self._post(study_path(study_id, ":cancel"), None, StudyRecord)

    def delete(self, study_id: str) -> None:
        """Deletes a study with everything that belongs to it.

        Raises:
            NotFound: No such study.
            Conflict: The study runs or waits to run.
        """
        self.study(study_id)
        with contextlib.suppress(NotFound):  # a retry after a lost answer
            self._request("DELETE", study_path(study_id))

    def extend(self, study_id: str, *, trials_per_method: int | None = None, seeds: int | None = None) -> StudyRecord:
        """Gives a study a larger budget; a finished study runs again.

        The numbers are the new totals.

        Raises:
            NotFound: No such study.
            InvalidSpec: A number is smaller than the present one, or none is given.
            Conflict: The study was cancelled.
        """
        try:
            body = Extension(trials_per_method=trials_per_method, seeds=seeds)
        except ValidationError as error:
            raise_invalid(error, Extension)
        return self._post(study_path(study_id, ":extend"), body, StudyRecord)

    def retry(self, study_id: str, trials: Sequence[str] = (), key: str | None = None) -> StudyRecord:
        """Runs FAILED trials of a study again.

        Args:
            study_id: Its id.
            trials: Their ids; all FAILED trials by default.
            key: Idempotency key: the same key again changes nothing; a fresh key by default.

        Raises:
            NotFound: No such study or trial.
            Conflict: No trial is FAILED, a named trial is not FAILED, or the study was cancelled.
        """
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return self._post(study_path(study_id, ":retry"), Retry(trials=list(trials)), StudyRecord, headers=headers)

    def trials(
        self, study_id: str, *, label: str | None = None, phase: str | None = None, state: str | None = None
    ) -> list[TrialRecord]:
        """The study's trials that match, in the order label, phase (search before confirmation), number.

        Raises:
            NotFound: No such study.
            InvalidRequest: There is no such phase or state.
        """
        filters = {"label": label, "phase": phase, "state": state, "page_size": "1000"}
        params = {name: value for name, value in filters.items() if value is not None}
        path = study_path(study_id, "/trials")
        return [trial for page in self._pages(path, params, TrialPage) for trial in page.trials]

    def curves(self, study_id: str, trials: Sequence[str] = ()) -> dict[str, dict[str, list[Any]]]:
        """Curves by trial id, one list per metric; of all trials unless some are named.

        Raises:
            NotFound: No such study or trial.
        """
        curves: dict[str, dict[str, list[Any]]] = {}
        path = study_path(study_id, "/curves")
        for start in range(0, max(1, len(trials)), _TRIALS_AT_ONCE):
            params = {"trial": trials[start : start + _TRIALS_AT_ONCE]}
            for page in self._pages(path, {**params, "page_size": "100"}, CurvesPage):
                curves |= page.curves
        return curves

    def frontier(self, study_id: str) -> dict[str, Any]:
        """The document of `driftline.results.document`: the frontiers of all labels so far.

        Raises:
            NotFound: No such study.
        """
        answer: dict[str, Any] = self._request("GET", study_path(study_id, "/frontier")).json()
        return answer

    def compare(self, study_id: str, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets, as `driftline.results.comparison.compare` does.

        Raises:
            NotFound: No such study or label.
            InvalidSpec: The same label twice.
        """
        params = {"a": first, "b": second}
        answer: dict[str, Any] = self._request("GET", study_path(study_id, "/compare"), params=params).json()
        return answer

    def events(self, study_id: str, after: int = 0) -> Iterator[Event]:
        """Yields the events of a study, from its beginning or after an event, until it has finished.

        After a broken connection, the stream continues where it broke.

        Raises:
            Unauthorized: The token is no longer valid: the service ends the stream and refuses the next request.
            Unavailable: The service was unavailable for longer than the client's patience.
        """
        deadline: float | None = None
        between = self._pauses()
        while True:
            try:
                for heard in self._stream(study_id, after):
                    if heard == "end":
                        return
                    deadline, between = None, self._pauses()
                    if isinstance(heard, Event):
                        after = heard.id
                        yield heard
            except httpx.TransportError as error:
                last = self._silent(error)
            except Unavailable as error:
                last = error
            else:
                last = Unavailable(f"the stream of events from {self.url} ended too early")
            deadline = deadline or time.monotonic() + self._patience_s
            if time.monotonic() >= deadline:
                raise last
            self._sleep(next(between))

    def logs(self, study_id: str, after: int = 0) -> list[LogLine]:
        """The stored lines of the drivers' logs in order, from the beginning or after the line with this id."""
        params = {"after": str(after), "page_size": "1000"}
        return [line for page in self._pages(study_path(study_id, "/logs"), params, LogPage) for line in page.lines]

    def _stream(self, study_id: str, after: int) -> Iterator[Event | Literal["heartbeat", "end"]]:
        """Events and heartbeats of one connection, and "end" when the service says that no more will come."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        timeout = httpx.Timeout(SILENCE_S, connect=10.0)
        with self._http.stream("GET", study_path(study_id, "/events"), headers=headers, timeout=timeout) as answer:
            if not answer.is_success:
                answer.read()
                raise failure(answer)
            name, data = "message", ""
            for line in answer.iter_lines():
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data":
                    data += value.removeprefix(" ")
                elif line and not field:
                    yield "heartbeat"
                elif not line:
                    if name == "end":
                        yield "end"
                        return
                    if data:
                        yield Event.model_validate_json(data)
                    name, data = "message", ""


def study_path(study_id: str, subpath: str = "") -> str:
    """The URL path of a study, or of something below it."""
    return f"/v1/studies/{quote(study_id, safe='')}{subpath}"
