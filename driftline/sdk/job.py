"""A submitted study: its state, its trials, its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from driftline.client.api_client import ApiClient
from driftline.errors import DriftlineError
from driftline.results.curves import TrialCurve
from driftline.results.modelled_time import Time
from driftline.results.recorded_table import RecordedTable, study_table
from driftline.results.show.escaped_text import escaped
from driftline.results.study_result import StudyResult, joined_result, study_result
from driftline.results.trial_list import first_difference
from driftline.sdk.compared_labels import ComparedLabels
from driftline.sdk.frames import CurvesByTrial, TrialRecords
from driftline.sdk.frontier import Frontier, Recommendation
from driftline.sdk.job_notebook import job_html
from driftline.sdk.progress import ProgressDisplay
from driftline.sdk.sparklines import sparklines
from driftline.study.directions import sign
from driftline.study.spec import Study
from driftline.wire.logs import LogLine
from driftline.wire.records import Event, StudyRecord

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


def rests(record: StudyRecord, deadline: float | None) -> bool:
    """Whether the study has finished or is paused.

    Args:
        record: The study.
        deadline: Until when to wait, as a time of `time.monotonic`; None waits forever.

    Raises:
        StudyFailed: The study has failed.
        TimeoutError: The deadline is over.
    """
    if record.state == "FAILED":
        raise StudyFailed(f"study {record.name!r} failed: {escaped(record.reason)}")
    if record.state not in RESTING and deadline is not None and time.monotonic() > deadline:
        raise TimeoutError(f"study {record.name!r} is still {record.state.lower()}; it continues")
    return record.state in RESTING


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
        shown = ProgressDisplay(sys.stderr, self._metric) if progress else None
        try:
            return self._wait(shown, deadline)
        finally:
            if shown is not None:
                shown.close()

    def _wait(self, shown: ProgressDisplay | None, deadline: float | None) -> Job:
        best: dict[str, float] = {}
        seen, looked, every = -1, float("-inf"), BEST_EVERY_S
        while True:
            record = self.record()
            self._watch(shown)
            if shown is not None:
                resting = record.state in RESTING
                began = time.monotonic()
                if record.version != seen and (resting or began - looked >= every):
                    best, seen = self.best_in_search(), record.version
                    if shown.wide and best:
                        shown.draw(sparklines(self.frontier().data, record.study.objective.cost))
                    looked = time.monotonic()
                    every = max(BEST_EVERY_S, 20 * (looked - began))  # large studies: 5 % of the time
                shown.update(record, best)
            if rests(record, deadline):
                return self
            time.sleep(POLL_S)

    def _watch(self, shown: ProgressDisplay | None) -> None:
        """Hook that is called at every poll while waiting; does nothing for a remote service."""

    def best(self, label: str | None = None, *, cost: float | None = None) -> Recommendation:
        """What to run for a cost, and what quality to expect: the numbers of ``driftline frontier``.

        For another metric or another kind of cost: ``job.frontier(cost="bytes").best(cost=1e9)``.

        Args:
            label: A label; None takes the one whose frontier is best at this cost. That is no verdict: see `compare`.
            cost: The most that training may cost, in the unit of the objective's cost (rounds, bytes, ...); the largest
                cost of the study by default.

        Raises:
            NotFound: No such label, nothing to recommend yet, or all of it diverged later.
            InvalidSpec: Nothing that is recommended is that cheap, or the cost is not a number.
        """
        return self.frontier().best(label, cost=cost)

    def best_in_search(self) -> dict[str, float]:
        """The best final quality of any search trial of each label so far, in the unit of the metric.

        It is for watching a study: the best of many noisy numbers is biased. `best` gives what to expect.
        """
        direction = sign(self._metric)
        best: dict[str, float] = {}
        for trial in self.trials(phase="search", state="COMPLETE"):
            if trial.values is not None:
                best[trial.label] = max(trial.values.quality, best.get(trial.label, float("-inf")))
        return {label: direction * quality for label, quality in best.items()}

    def trials(self, label: str | None = None, phase: str | None = None, state: str | None = None) -> TrialRecords:
        """Its trials, or those of a label, a phase ("search", "confirmation") or a state.

        A list of `TrialRecord` with ``to_frame()``. The quality in ``values`` is that of the sampler: negated for
        metrics that fall.

        Raises:
            InvalidRequest: There is no such phase or state.
        """
        return TrialRecords(self._api.trials(self.id, label=label, phase=phase, state=state), self._metric)

    def curves(self, *trials: str) -> CurvesByTrial:
        """Curves by trial id, one list per metric; of all trials unless some are named. Has ``to_frame()``.

        Raises:
            NotFound: The study has no such trial.
        """
        return CurvesByTrial(self._api.curves(self.id, trials))

    def frontier(self, *others: Job, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
        """The frontiers of all labels so far.

        Args:
            others: Further studies on the same task, to be compared with this one: the result has one scale and one
                range of costs for the labels of all. Labels that two studies share become ``NAME/LABEL``.
            quality: Any metric that the trials reported; the study's objective by default.
            cost: A cost that the trials counted, such as "bytes", or a `driftline.Time` for modelled time; the study's
                objective by default.

        Raises:
            InvalidSpec: Unknown cost, or no trial reported the metric; or the other studies differ in what they train,
                for instance in task, batch_size or rounds.
        """
        if not others and quality is None and cost is None:
            return Frontier(self._api.frontier(self.id), self._load_curves)
        parts = [job._result(quality, cost) for job in (self, *others)]
        result = joined_result(parts) if others else parts[0][1]
        return Frontier(result.document, lambda: result.curves)

    def _result(self, quality: str | None, cost: str | Time | None) -> tuple[Study, StudyResult]:
        record = self.record()
        result = study_result(record, self.trials(), self.curves(), quality=quality, cost=cost)
        result.require_reported(quality)
        return record.study, result

    def table(self) -> RecordedTable:
        """Its ended trials as a table, which `driftline.results.recorded_table.write` stores, for `driftline replay`.

        Raises:
            NotFound: No trial has ended yet.
        """
        return study_table(self.record(), self.trials(), self.curves())

    def compare(self, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets: ``verdict`` is the better method or None, ``why`` says both claims.

        At another cost: ``job.frontier(cost="bytes").compare(first, second)``.

        Raises:
            NotFound: No such label.
            InvalidSpec: The same label twice.
        """
        return ComparedLabels(self._api.compare(self.id, first, second))

    def first_difference(self, other: Job) -> str | None:
        """The first trial that differs from another study's, and in what; None if both have the same trials."""
        return first_difference(self.trials(), other.trials())

    def pause(self) -> Job:
        """Asks the study to save checkpoints and stop; `resume` continues from there.

        Raises:
            Conflict: The study has finished, or is being cancelled.
        """
        self._api.pause(self.id)
        return self

    def resume(self) -> Job:
        """Continues a paused or failed study; repeats no finished trial.

        Raises:
            Conflict: The study has succeeded or was cancelled.
        """
        self._api.resume(self.id)
        return self

    def cancel(self) -> Job:
        """Cancels the study for good; its results so far stay.

        Raises:
            Conflict: The study has succeeded or failed.
        """
        self._api.cancel(self.id)
        return self

    def delete(self) -> None:
        """Deletes the study with everything that belongs to it: trials, curves, checkpoints, logs, runs in MLflow.

        Raises:
            Conflict: The study runs or waits to run: `cancel` it first. Or it is local: delete its folder instead.
        """
        self._api.delete(self.id)

    def extend(self, *, trials_per_method: int | None = None, seeds: int | None = None) -> Job:
        """Gives the study a larger budget; a finished one runs again, and repeats no finished trial.

        Args:
            trials_per_method: Configurations searched for each label, at least as many as now; None changes nothing.
            seeds: Fresh seeds for confirmation, at least as many as now; None changes nothing.

        Raises:
            InvalidSpec: A number is smaller than the present one, or none is given.
            Conflict: The study was cancelled.
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
            for line in self._log_lines(after):
                after = line.id
                yield line
            if resting:
                return
            time.sleep(LOGS_S)

    def _log_lines(self, after: int) -> Iterable[LogLine]:
        return self._api.logs(self.id, after)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yields the study's events (state, progress, log) as they happen, until it has finished.

        Args:
            after: Only events after the one with this id.
        """
        return self._api.events(self.id, after)

    def _repr_html_(self) -> str:
        """HTML for notebooks: state, progress of each label, link to the curves."""
        return job_html(self.record())

    def _load_curves(self) -> tuple[TrialCurve, ...]:
        return self._result(None, None)[1].curves

    @cached_property
    def _metric(self) -> str:
        """The study's quality, which never changes."""
        return self.record().study.objective.quality
