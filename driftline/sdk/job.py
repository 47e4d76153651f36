"""A submitted study: its state, its trials, its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from driftline.client.api_client import ApiClient
from driftline.errors import DriftlineError
from driftline.results.curves import TrialCurve
from driftline.results.directions import sign
from driftline.results.modelled_time import Time
from driftline.results.recorded_table import RecordedTable, study_table
from driftline.results.show.escaped_text import escaped
from driftline.results.study_result import study_result
from driftline.sdk.frontier import Frontier
from driftline.sdk.notebook import job_html
from driftline.sdk.progress import ProgressDisplay
from driftline.wire.logs import LogLine
from driftline.wire.records import Event, StudyRecord, TrialRecord

POLL_S = 0.5
"""Seconds between two polls of a study while waiting for it."""

BEST_EVERY_S = 2.0
"""Seconds between two requests for all finished trials, for the best quality in the progress view."""

LOGS_S = 1.0
"""Seconds between two polls of a log that is followed."""

RESTING = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "PAUSED"})
"""States that a study leaves only if its owner acts."""


class StudyFailed(DriftlineError):
    """The study that `wait` waits for has failed; the message says why."""

    code = "study-failed"
    exit_code = 1


class Job:
    """One study in a service.

    Args:
        api: Connection to the service.
        study_id: Id of the study.

    Attributes:
        id: Id of the study.
    """

    def __init__(self, api: ApiClient, study_id: str) -> None:
        self._api = api
        self.id = study_id

    def __repr__(self) -> str:
        record = self.record()
        return f"Job({record.name!r}, {record.state.lower()}, id={self.id!r})"

    def record(self) -> StudyRecord:
        """The study as it is stored now: state, progress, specification."""
        return self._api.study(self.id)

    @property
    def state(self) -> str:
        """PENDING, QUEUED, RUNNING, PAUSING, PAUSED, CANCELLING, CANCELLED, SUCCEEDED or FAILED."""
        return self.record().state

    @property
    def mlflow_url(self) -> str | None:
        """Its curves in MLflow: an address, or for a local study the command that shows them; None if not there."""
        return self.record().mlflow_url

    def wait(self, progress: bool = False, timeout_s: float | None = None) -> Job:
        """Waits until the study has finished or is paused.

        Args:
            progress: Whether to show progress on stderr: a live table in a terminal, lines elsewhere.
            timeout_s: Seconds after which to give up waiting (the study continues); None waits forever.

        Returns:
            The job itself, so that calls can be chained.

        Raises:
            StudyFailed: The study has failed.
            TimeoutError: The study has not finished in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        shown = ProgressDisplay(sys.stderr, self._metric(self.record())) if progress else None
        try:
            return self._wait(shown, deadline)
        finally:
            if shown is not None:
                shown.close()

    def _wait(self, shown: ProgressDisplay | None, deadline: float | None) -> Job:
        best: dict[str, float] = {}
        seen, looked = -1, float("-inf")
        while True:
            record = self.record()
            self._watch(shown)
            if shown is not None:
                resting = record.state in RESTING
                if record.version != seen and (resting or time.monotonic() - looked >= BEST_EVERY_S):
                    best, seen, looked = self.best(record), record.version, time.monotonic()
                shown.update(record, best)
            if record.state == "FAILED":
                raise StudyFailed(f"study {record.name!r} failed: {escaped(record.reason)}")
            if record.state in RESTING:
                return self
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"study {record.name!r} is still {record.state.lower()}; it continues")
            time.sleep(POLL_S)

    def _watch(self, shown: ProgressDisplay | None) -> None:
        """Hook that is called at every poll while waiting; does nothing for a remote service."""

    def best(self, record: StudyRecord | None = None) -> dict[str, float]:
        """The best quality of each label so far, in the metric's own sign: losses are not negated."""
        direction = sign(self._metric(record or self.record()))
        found: dict[str, float] = {}
        for trial in self.trials(state="COMPLETE"):
            if trial.values is not None:
                found[trial.label] = max(trial.values.quality, found.get(trial.label, float("-inf")))
        return {label: direction * quality for label, quality in found.items()}

    def trials(self, label: str | None = None, phase: str | None = None, state: str | None = None) -> list[TrialRecord]:
        """Its trials, or those of a label, a phase ("search", "confirmation") or a state."""
        return list(self._api.trials(self.id, label=label, phase=phase, state=state))

    def curves(self, *trials: str) -> dict[str, dict[str, list[Any]]]:
        """Curves by trial id, one list per metric; of all trials unless some are named."""
        return self._api.curves(self.id, trials)

    def frontier(self, *, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
        """The frontiers of all labels so far.

        Args:
            quality: Any metric that the trials reported; the study's objective by default.
            cost: "rounds", "bytes", "client_gradients", "examples", "seconds", or a `driftline.Time` for modelled time;
                the study's objective by default.

        Raises:
            InvalidSpec: Unknown cost, or no trial reported the metric.
        """
        if quality is None and cost is None:
            return Frontier(self._api.frontier(self.id), self._load_curves)
        result = study_result(self.record(), self.trials(), self.curves(), quality=quality, cost=cost)
        result.require_reported(quality)
        return Frontier(result.document, lambda: result.curves)

    def table(self) -> RecordedTable:
        """Its ended trials as a table, which `driftline.results.recorded_table.write` stores, for `driftline replay`.

        Raises:
            NotFound: No trial has ended yet.
        """
        return study_table(self.record(), self.trials(), self.curves())

    def compare(self, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets: ``verdict`` is a label or None, ``why`` explains it."""
        return self._api.compare(self.id, first, second)

    def pause(self) -> Job:
        """Asks the study to save checkpoints and stop; `resume` continues from there."""
        self._api.pause(self.id)
        return self

    def resume(self) -> Job:
        """Continues a paused or failed study; repeats no finished trial."""
        self._api.resume(self.id)
        return self

    def cancel(self) -> Job:
        """Cancels the study for good; its results so far stay."""
        self._api.cancel(self.id)
        return self

    def delete(self) -> None:
        """Deletes the study with everything that belongs to it: trials, curves, checkpoints, logs, runs in MLflow.

        Raises:
            Conflict: The study runs or waits to run: `cancel` it first.
        """
        self._api.delete(self.id)

    def extend(self, *, trials_per_method: int | None = None, seeds: int | None = None) -> Job:
        """Gives the study a larger budget; a finished one runs again, and repeats no finished trial.

        Args:
            trials_per_method: Configurations searched for each label, at least as many as now; None changes nothing.
            seeds: Fresh seeds for confirmation, at least as many as now; None changes nothing.

        Raises:
            InvalidSpec: A number is smaller than the present one.
        """
        self._api.extend(self.id, trials_per_method=trials_per_method, seeds=seeds)
        return self

    def retry(self, *trials: str) -> Job:
        """Runs FAILED trials again, all of them or the named ones; a finished study continues.

        Args:
            trials: Their ids.

        Raises:
            NotFound: The study has no such trial.
            Conflict: No trial is FAILED, a named trial is not FAILED, or the study was cancelled.
        """
        self._api.retry(self.id, trials)
        return self

    def logs(self, follow: bool = False, after: int = 0) -> Iterator[LogLine]:
        """Yields the stored lines of the drivers' logs, oldest first.

        Args:
            follow: Whether to wait for further lines until the study has finished or is paused.
            after: Only lines after the one with this id.
        """
        while True:
            resting = not follow or self.state in RESTING  # read before the lines, so that none is missed
            for line in self._api.logs(self.id, after):
                after = line.id
                yield line
            if resting:
                return
            time.sleep(LOGS_S)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yields the study's events (state, progress, log) as they happen, until it has finished.

        Args:
            after: Only events after the one with this id.
        """
        return self._api.events(self.id, after)

    def _repr_html_(self) -> str:
        """HTML for notebooks: state, progress of each label, link to the curves."""
        return job_html(self.record())

    def _load_curves(self) -> list[TrialCurve]:
        curves = self.curves()
        return [TrialCurve.from_record(trial, curves.get(trial.id, {})) for trial in self.trials()]

    @staticmethod
    def _metric(record: StudyRecord) -> str:
        return record.study.objective.quality
