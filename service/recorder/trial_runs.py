"""Writes the runs of a study's trials to MLflow, those that have ended and those that are under way."""

from __future__ import annotations

import time
from collections.abc import Mapping

from driftline.results.curves import TrialCurve
from driftline.results.document import Reading
from driftline.results.ledger import rounds_of
from driftline.results.runs import ENDED, runs_of_all
from driftline.results.show.escaped_text import escaped
from driftline.wire.records import StudyRecord, TrialRecord
from service.recorder.bulk_runs import WholeRun
from service.recorder.curve_rows import rows, totals
from service.recorder.run_contents import milliseconds, trial_params, trial_rows, trial_tags
from service.recorder.study_lease import StudyLease
from service.recorder.tracking import Row, Tracking
from service.store.recorder_state import Recorded, Unrecorded
from service.store.store import Store

LIVE_AFTER_S = 30.0  # between two writes of a running trial, at least

_CURVES_AT_ONCE = 50
_STATUS = {**dict.fromkeys(("COMPLETE", "STOPPED", "DIVERGED"), "FINISHED"), "FAILED": "FAILED", "CANCELLED": "KILLED"}


class TrialRuns:
    """The runs of a study's trials.

    Args:
        store: The store, which also records what has been written.
        study_id: Id of the study.
        lease: The recorder's lease on the study.
    """

    def __init__(self, store: Store, study_id: str, lease: StudyLease) -> None:
        self._store = store
        self._study_id = study_id
        self._lease = lease
        self._touched: dict[str, float] = {}  # when each trial was last written

    def write(self, runs: Tracking, study: StudyRecord) -> tuple[int, bool]:
        """Write every trial that has something new to show.

        Args:
            runs: The experiment of the trials.
            study: The study.

        Returns:
            How many were written, and whether these are all; False if the lease was lost.
        """
        due = [trial for trial in self._store.recorder_state.unrecorded(self._study_id) if self._due(trial)]
        wrote = 0
        for start in range(0, len(due), _CURVES_AT_ONCE):
            part = due[start : start + _CURVES_AT_ONCE]
            written = self._some(runs, study, {trial.trial: trial.entry for trial in part})
            wrote += written
            if written < len(part):
                return wrote, False
        return wrote, True

    def _due(self, trial: Unrecorded) -> bool:
        """Whether a trial has something new to show: it has ended (again), or done twice the rounds shown."""
        if trial.ended:
            return True
        now = time.monotonic()
        since = self._touched.setdefault(trial.trial, now)
        shown = trial.entry.rounds if trial.entry is not None else 0
        return trial.rounds_done >= max(2 * shown, 1) and now - since >= LIVE_AFTER_S

    def _some(self, runs: Tracking, study: StudyRecord, entries: Mapping[str, Recorded | None]) -> int:
        """Write some trials; returns how many were written, fewer than all if the lease was lost.

        Args:
            runs: The experiment of the trials.
            study: The study.
            entries: What was recorded about each of them, by trial id.
        """
        trials = self._store.trials.find(self._study_id, ids=list(entries))
        curves = self._store.curves.arrays(self._study_id, trials=[trial.id for trial in trials])
        read = {trial.id: TrialCurve.from_record(trial, curves[trial.id]) for trial in trials}
        objective = study.study.objective
        together = [(curve.configuration, [curve]) for curve in read.values() if curve.state in ENDED]
        runs_of_all(together, objective.quality, objective.cost)  # which trial_rows then finds in each curve's cache
        shown: list[Recorded] = []
        if not self._lease.keep():
            return 0
        new = [trial for trial in trials if trial.finished and not runs.shows(trial.id)]
        if runs.add({trial.id: _whole(study, trial, read[trial.id]) for trial in new}):
            shown = [_recorded(trial, runs.run_id(trial.id), read[trial.id]) for trial in new]
        written = {entry.key for entry in shown}
        try:
            for trial in trials:
                if trial.id in written:
                    continue
                if not self._lease.keep():
                    break
                shown.append(self._trial(runs, study, trial, read[trial.id], entries[trial.id]))
                self._touched[trial.id] = time.monotonic()
        finally:
            if shown:
                self._store.recorder_state.write(self._study_id, *shown)
        return len(shown)

    def _trial(
        self, runs: Tracking, study: StudyRecord, trial: TrialRecord, curve: TrialCurve, entry: Recorded | None
    ) -> Recorded:
        """Write a trial as far as it has come; `Recorded.version` is the attempt under which it ended, else 0."""
        started = milliseconds(trial.created_at)
        run_id = runs.run(trial.id, _short(trial), trial_tags(study, trial), started)
        fresh = entry is None or entry.run_id != run_id
        after = -1 if entry is None or fresh or not entry.rounds else entry.rounds  # it may have failed before round 0
        new = _rows(study, trial, curve, after)
        state = _state(trial, again=entry is not None and entry.version > 0)
        runs.write(run_id, new, timestamp_ms=started, params=trial_params(trial) if fresh else {}, tags=state)
        if trial.finished:
            runs.end(run_id, _STATUS[trial.state], milliseconds(trial.updated_at))
        return _recorded(trial, run_id, curve)


def _whole(study: StudyRecord, trial: TrialRecord, curve: TrialCurve) -> WholeRun:
    """The run of a finished trial."""
    return WholeRun(
        name=_short(trial),
        tags=trial_tags(study, trial) | _state(trial),
        params=trial_params(trial),
        rows=_rows(study, trial, curve, -1),
        started_ms=milliseconds(trial.created_at),
        ended_ms=milliseconds(trial.updated_at),
        status=_STATUS[trial.state],
    )


def _short(trial: TrialRecord) -> str:
    return trial.id.removeprefix(f"{trial.study_id}.")


def _rows(study: StudyRecord, trial: TrialRecord, curve: TrialCurve, after: int) -> list[Row]:
    """What a trial's run shows beyond the rounds that were written before."""
    final = trial.finished and trial.state != "FAILED"  # a failed trial may be retried and come further
    budget = study.study.budget_of(study.study.entry(trial.label))
    rounds = rounds_of(curve, budget.unit, budget.amount)
    new = rows(curve.columns, rounds, after, curve.rounds_done, finished=final)
    if final:
        new += [(name, value, curve.rounds_done) for name, value in totals(curve.columns).items()]
        new += trial_rows(curve, Reading(study.study.objective.quality, study.study.objective.cost))
    return new


def _state(trial: TrialRecord, *, again: bool = False) -> dict[str, str]:
    """Tags that change; `again` replaces the error of an earlier end, even by an empty one."""
    error = {"driftline.error": escaped(trial.error or "")} if trial.error or again else {}
    return {"driftline.state": trial.state} | error


def _recorded(trial: TrialRecord, run_id: str, curve: TrialCurve) -> Recorded:
    return Recorded("trial", trial.id, run_id, _end(trial) if trial.finished else 0, curve.rounds_done)


def _end(trial: TrialRecord) -> int:
    """Which end of a trial this is: its attempt, which is larger when a retried trial ends again."""
    return max(trial.attempt, 1)
