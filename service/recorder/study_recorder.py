"""Writes a study to MLflow: an experiment with runs of the study and its labels, and another one with its trials.

    experiment NAME xxxxxx           the study's run (description, artifacts frontier.{html,png,json}, trials.csv)
                                     a run for each label: metric `frontier`, with the cost as its step
    experiment NAME xxxxxx trials    a run for each trial: hyperparameters as parameters, about 64 rounds per metric

MLflow lists the newest hundred runs and folds child runs into their parents, so a thousand trials in the same
experiment would hide the labels; hence two experiments, and no nesting. Everything is read from the store, and every
write may be repeated: runs are found by their tag, and rows carry the time of their trial. A label's frontier changes
while the study runs, and MLflow cannot delete a row. The label therefore gets a new run whenever the number of finished
trials has doubled, and at the end; the old run goes to MLflow's bin.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from driftline.backoff import pauses
from driftline.results.curves import TrialCurve
from driftline.results.document import Reading
from driftline.results.ledger import rounds_of
from driftline.results.runs import ENDED, runs_of_all
from driftline.results.show.escaped_text import escaped
from driftline.results.show.palette import styles
from driftline.results.study_result import FILES, StudyResult, study_result
from driftline.wire.ids import holder
from driftline.wire.records import TRIAL_FINISHED, StudyRecord, TrialRecord
from service.recorder.bulk_runs import WholeRun
from service.recorder.chart_view import VIEW, VIEW_TAG, labels_view, trials_view
from service.recorder.curve_rows import metric_name, rows, totals
from service.recorder.links import MlflowLink, artifact_page, charts_page, mlflow_link, table_page
from service.recorder.run_contents import (
    STUDY_TAG,
    dataset,
    frontier_rows,
    frontier_trials,
    label_params,
    note,
    shared_target,
    study_key,
    study_params,
    trial_params,
    trial_rows,
    trial_tags,
)
from service.recorder.study_artifacts import StudyArtifacts, first_line
from service.recorder.tracking import Row, Tracking, connect_to_record
from service.sqlite_address import shown_address
from service.store.recorder_state import Recorded, Unrecorded
from service.store.store import Store
from service.store.stored_studies import Glance

_LOG = logging.getLogger(__name__)

LEASE_S = 20.0
EVERY_S = 2.0  # between two polls of the store
LONGEST_WAIT_S = 60.0  # between two attempts while MLflow is unreachable
REFRESH_S = 15.0  # between two writes of a running study's labels, at least
LIVE_AFTER_S = 30.0  # between two writes of a running trial, at least
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of experiments with which MLflow leaves out pages that are not for training."""

_CURVES_AT_ONCE = 50
_BEGUN = "begun"  # kind of what is recorded before anything is in MLflow
_STATUS = {**dict.fromkeys(("COMPLETE", "STOPPED", "DIVERGED"), "FINISHED"), "FAILED": "FAILED", "CANCELLED": "KILLED"}


def retries() -> Iterator[float]:
    """Seconds between two attempts while MLflow is unreachable."""
    return pauses(2 * EVERY_S, LONGEST_WAIT_S)


class Recorder:
    """Keeps MLflow up to date with one study. A lease ensures that only one recorder does.

    Args:
        store: The store, which also records what has been written.
        study_id: Id of the study.
        tracking_uri: URL of an MLflow server, or ``sqlite:///`` and a file.
        artifact_root: URI or folder for artifacts of new experiments; None leaves it to the server.
        public_url: Address of the MLflow server for browsers, if it differs from `tracking_uri`.
        client: Makes the MLflow client; tests replace it.

    Attributes:
        doubts: Whether a write was cut off, by an error or the loss of the lease, so that MLflow may get something
            from it after another recorder has written everything: all is then looked at again.
    """

    def __init__(
        self,
        store: Store,
        study_id: str,
        tracking_uri: str,
        artifact_root: str | None = None,
        *,
        public_url: str = "",
        client: Callable[[str], Any] = connect_to_record,
    ) -> None:
        self._store = store
        self._study_id = study_id
        self._uri = tracking_uri
        self._artifact_root = artifact_root
        self._public_url = public_url
        self._connect = client
        self._holder = holder()
        self._lock_name = lock_name(study_id)
        self._renewed = 0.0
        self._refreshed = float("-inf")
        self._shown: tuple[int, str] | None = None  # version and state of the study that MLflow shows in full
        self._written: tuple[int, str] | None = None  # likewise, except perhaps for artifacts
        self._artifacts = StudyArtifacts(store, study_id)
        self._labels: Tracking | None = None
        self._trials: Tracking | None = None
        self._latest: tuple[int, str, StudyResult, dict[str, bytes]] | None = None  # version, state
        self.doubts = False
        self._touched: dict[str, float] = {}  # when each trial was last written

    def sync(self) -> bool:
        """Write what is new since last time.

        Returns:
            Whether anything was written; False if nothing is new, or another recorder has the lease.

        Raises:
            Exception: Whatever MLflow raises when its server is unreachable; nothing is lost, call again later.
        """
        study = self._store.studies.get(self._study_id)
        waits = self._artifacts.waits and self._written == (study.version, study.state)
        if waits or self.shows(study) or not self._take():
            return False
        try:
            with self._renewing():
                return self._write(study)
        except Exception:
            self._doubt()
            raise

    def shows(self, study: StudyRecord | Glance) -> bool:
        """Whether MLflow shows this version of the study in full."""
        return self._shown == (study.version, study.state)

    def run(self, stop: threading.Event) -> None:
        """Sync repeatedly until `stop` is set, or the study has finished and MLflow shows it in full; never raises.

        While MLflow is unreachable, the time between two attempts doubles up to a minute.
        """
        between = retries()
        while not stop.is_set():
            wait = EVERY_S
            try:
                self.sync()
                between = retries()
                if self._current(finished=True):
                    break
            except Exception as error:
                wait = next(between)
                where, problem = shown_address(self._uri), first_line(error)
                _LOG.warning("MLflow at %s is unreachable, next attempt in %.0f s: %s", where, wait, problem)
            stop.wait(wait)
        self._store.locks.release(self._lock_name, self._holder)

    def finish(self, timeout_s: float = 60.0) -> bool:
        """Write everything that is left, with the artifacts; retries until that is done or the time is over.

        Returns:
            Whether MLflow shows everything. If not, nothing is lost: the next recorder of this study continues.
        """
        end = time.monotonic() + timeout_s
        between = pauses(0.25, 5.0)
        while True:
            try:
                self.sync()
                if self._current():
                    return True
                reason = self._artifacts.problem or "another recorder is running"
            except Exception as error:
                reason = first_line(error)
            wait = next(between)
            if time.monotonic() + wait > end:
                _LOG.warning(
                    "study %s is not all in MLflow at %s yet: %s", self._study_id, shown_address(self._uri), reason
                )
                return False
            time.sleep(wait)

    def files(self) -> dict[str, bytes]:
        """The study's result files, by name; made once for each version of the study."""
        study = self._store.studies.get(self._study_id)
        return self._files(self._result(study))

    def link(self) -> MlflowLink | None:
        """How to open the study in MLflow; None until it is there."""
        for entry in self._store.recorder_state.read(self._study_id, "experiment"):
            if entry.key == "labels":
                return mlflow_link(self._uri, entry.run_id, public_url=self._public_url, view=VIEW)
        return None

    def _write(self, study: StudyRecord) -> bool:
        state = self._store.recorder_state
        if not state.read(self._study_id, _BEGUN):  # from now on MLflow may have something to delete with the study
            state.write(self._study_id, Recorded(_BEGUN, "", ""))
        labels, runs = self._open(study)
        known = {(entry.kind, entry.key): entry for entry in state.read(self._study_id, but="trial")}
        if ("experiment", "trials") not in known:
            entries = (("labels", labels.experiment_id), ("trials", runs.experiment_id))
            state.write(self._study_id, *(Recorded("experiment", key, number) for key, number in entries))
        self._tell_link(study, labels)
        wrote = 0
        due = [trial for trial in state.unrecorded(self._study_id) if self._due(trial)]
        for start in range(0, len(due), _CURVES_AT_ONCE):
            part = due[start : start + _CURVES_AT_ONCE]
            written = self._some(runs, study, {trial.trial: trial.entry for trial in part})
            wrote += written
            if written < len(part):
                self._doubt()
                return wrote > 0
        refresh = not labels.shows(study_key(study)) or self._refresh_due(study, known)
        refresh |= self.doubts and study.finished
        if refresh and study.state == "RUNNING" and time.monotonic() - self._refreshed < REFRESH_S:
            return wrote > 0  # a refresh costs as much as dozens of trials
        if refresh:
            if not self._refresh(labels, runs, study):
                self._doubt()
                return True
            wrote += 1
        self._written = (study.version, study.state)
        self.doubts = False
        files_are_there = self._artifacts.put(labels, lambda: self._files(self._result(study)))
        if not self._lease():  # they may have replaced newer ones of another recorder
            self._doubt()
            return True
        if files_are_there:
            self._shown = self._written
            if not study.finished:  # the next result is computed from everything again
                self._latest = None
        return wrote > 0

    def _doubt(self) -> None:
        self.doubts = True
        self._shown = self._written = None
        self._labels = self._trials = None  # look up again what was written, and keep one run of each

    def _open(self, study: StudyRecord) -> tuple[Tracking, Tracking]:
        if self._labels is None or self._trials is None:
            client, (labels, trials) = self._connect(self._uri), experiments(study.name, study.id)
            tags = {STUDY_TAG: study.id, **KIND}
            opened = (
                Tracking(client, labels, self._artifact_root, tags),
                Tracking(client, trials, self._artifact_root, tags),
            )
            entries = self._store.recorder_state.read(self._study_id)
            if not any(tracking.has(entry.run_id) for entry in entries for tracking in opened):
                self._store.recorder_state.clear(self._study_id, {_BEGUN})  # MLflow's database is new: write all again
            self._labels, self._trials = opened
        return self._labels, self._trials

    def _tell_link(self, study: StudyRecord, labels: Tracking) -> None:
        """Stores the study's URL in MLflow; None if no server shows the database to which it is written."""
        link = mlflow_link(self._uri, labels.experiment_id, public_url=self._public_url, view=VIEW)
        url = None if link.command else link.url
        if study.mlflow_url != url:
            self._store.studies.set_mlflow_url(self._study_id, url)

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
        if not self._lease():
            return 0
        new = [trial for trial in trials if trial.finished and not runs.shows(trial.id)]
        if runs.add({trial.id: self._whole(study, trial, read[trial.id]) for trial in new}):
            shown = [_recorded(trial, runs.run_id(trial.id), read[trial.id]) for trial in new]
        written = {entry.key for entry in shown}
        try:
            for trial in trials:
                if trial.id in written:
                    continue
                if not self._lease():
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
        started = _milliseconds(trial.created_at)
        run_id = runs.run(trial.id, _short(trial), trial_tags(study, trial), started)
        fresh = entry is None or entry.run_id != run_id
        after = -1 if entry is None or fresh or not entry.rounds else entry.rounds  # it may have failed before round 0
        new = _rows(study, trial, curve, after)
        state = _state(trial, again=entry is not None and entry.version > 0)
        runs.write(run_id, new, timestamp_ms=started, params=trial_params(trial) if fresh else {}, tags=state)
        if trial.finished:
            runs.end(run_id, _STATUS[trial.state], _milliseconds(trial.updated_at))
        return _recorded(trial, run_id, curve)

    def _whole(self, study: StudyRecord, trial: TrialRecord, curve: TrialCurve) -> WholeRun:
        """The run of a finished trial."""
        return WholeRun(
            name=_short(trial),
            tags=trial_tags(study, trial) | _state(trial),
            params=trial_params(trial),
            rows=_rows(study, trial, curve, -1),
            started_ms=_milliseconds(trial.created_at),
            ended_ms=_milliseconds(trial.updated_at),
            status=_STATUS[trial.state],
        )

    def _refresh_due(self, study: StudyRecord, known: Mapping[tuple[str, str], Recorded]) -> bool:
        """Whether to write labels and artifacts: at first, when the finished trials have doubled, and at the end."""
        if study.finished:
            ended = known.get(("ended", ""))
            return ended is None or ended.version != study.version
        entry = known.get(("study", ""))
        return entry is None or _finished(study) >= max(2 * entry.rounds, 1)

    def _refresh(self, labels: Tracking, runs: Tracking, study: StudyRecord) -> bool:
        """Write the study and its labels; False if the lease was lost, or a late run took the place of the study's."""
        if not self._lease(force=True):
            return False
        result = self._result(study)
        names = list(result.document["methods"])
        created = _milliseconds(study.created_at)
        key = study_key(study)
        study_run = labels.run(
            key,
            study.name,
            {STUDY_TAG: study.id, "driftline.kind": "study", "mlflow.runColor": "#777777"},
            created + len(names),
        )
        runs.mark("on_frontier", frontier_trials(result), step=study.version + 1, timestamp_ms=created)
        pages = {
            "Frontier page": artifact_page(labels.experiment_id, study_run, "frontier.html"),
            "Trials": table_page(runs.experiment_id, VIEW),
        }
        text = note(result, study, pages)
        labels.write(study_run, timestamp_ms=created, params=study_params(study), tags={"mlflow.note.content": text})
        labels.uses(study_run, dataset(study))
        kept = [
            self._label(labels, study, result, label, created + len(names) - 1 - i) for i, label in enumerate(names)
        ]
        labels.keep_only("label/", kept)
        labels.keep_only("study", [key])
        labels.tag_experiment(
            {"mlflow.note.content": text, VIEW_TAG: labels_view(result.document, result.reading, created)}
        )
        hyperparameters = [[metric_name(name) for name in curve.hyperparameters] for curve in result.curves]
        view = trials_view(result.reading, shared_target(result), hyperparameters, created)
        back = f"Trials of {study.name}. [Frontier]({charts_page(labels.experiment_id, VIEW)})"
        runs.tag_experiment({"mlflow.note.content": back, VIEW_TAG: view})
        if study.finished:
            status = {"SUCCEEDED": "FINISHED", "CANCELLED": "KILLED"}.get(study.state, "FAILED")
            labels.end(study_run, status, _milliseconds(study.finished_at or study.updated_at))
            for experiment in (labels, runs):
                experiment.keep_one_each()
        if labels.run_id(key) != study_run or not self._lease(force=True):
            return False
        finished = _finished(study)
        entries = [Recorded("study", "", study_run, study.version, finished)]
        if study.finished:
            entries.append(Recorded("ended", "", study_run, study.version, finished))
        if study.finished or finished:  # empty plots delay a study's start
            entries.append(self._artifacts.due(study_run, study.version))
        self._store.recorder_state.write(self._study_id, *entries)
        self._refreshed = time.monotonic()
        return True

    def _result(self, study: StudyRecord) -> StudyResult:
        """The result of this version of the study."""
        if self._latest is None or self._latest[:2] != (study.version, study.state):
            self._latest = None  # two results of a large study would take the memory twice
            trials = self._store.trials.find(self._study_id)
            result = study_result(study, trials, self._store.curves.arrays(self._study_id))
            self._latest = (study.version, study.state, result, {})
        return self._latest[2]

    def _files(self, result: StudyResult) -> dict[str, bytes]:
        """The files of the latest result; drawn once."""
        assert self._latest is not None
        files = self._latest[3]
        if not files:
            files.update((name, result.file(name)) for name in FILES)
        return files

    def _label(self, labels: Tracking, study: StudyRecord, result: StudyResult, label: str, started_ms: int) -> str:
        """Write a label's run for this version of the study; returns its key. MLflow lists the latest start first."""
        key = f"label/{label}/{study.version}/{study.state}"
        tags = {
            STUDY_TAG: study.id,
            "driftline.kind": "label",
            "driftline.label": label,
            "driftline.method": study.study.entry(label).name,
        }
        tags["mlflow.runColor"] = styles(result.document["methods"])[label].colour
        run_id = labels.run(key, label, tags, started_ms)
        given = frontier_rows(result.document["methods"][label], result.reading)
        labels.write(run_id, given, timestamp_ms=started_ms, params=label_params(study, result, label))
        labels.uses(run_id, dataset(study))
        if study.finished:
            labels.end(run_id, "FINISHED", _milliseconds(study.finished_at or study.updated_at))
        return key

    def _take(self) -> bool:
        """Take the lease; False if another recorder has it. What it wrote, if it had the lease, is looked up."""
        if self._lease(force=True):
            return True
        now = time.monotonic()
        if not self._store.locks.take(self._lock_name, self._holder, LEASE_S):
            return False
        self._renewed = now
        if self._labels is not None:
            self._doubt()
        return True

    @contextlib.contextmanager
    def _renewing(self) -> Iterator[None]:
        """Renews the lease meanwhile: one step of a large study, or one slow answer, may take longer than the lease."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_S / 4):
                with contextlib.suppress(Exception):  # the next write will say so
                    self._store.locks.keep(self._lock_name, self._holder, LEASE_S)

        thread = threading.Thread(target=renew, name="recorder-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _lease(self, *, force: bool = False) -> bool:
        """Renew the lease; False if another recorder may have had it since it was taken."""
        now = time.monotonic()
        if force or now - self._renewed > LEASE_S / 4:
            if not self._store.locks.keep(self._lock_name, self._holder, LEASE_S):
                return False
            self._renewed = now
        return True

    def _current(self, *, finished: bool = False) -> bool:
        study = self._store.studies.get(self._study_id)
        return self.shows(study) and (study.finished or not finished)


def lock_name(study_id: str) -> str:
    """Name of the lock of the only recorder that writes about a study."""
    return f"recorder/{study_id}"


def experiments(name: str, study_id: str) -> tuple[str, str]:
    """Names of a study's two experiments: for its labels, and for its trials."""
    return f"{name} {study_id[-6:]}", f"{name} {study_id[-6:]} trials"


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
    """Tags that change; one that ended before may show an old error."""
    error = {"driftline.error": escaped(trial.error or "")} if trial.error or again else {}
    return {"driftline.state": trial.state} | error


def _recorded(trial: TrialRecord, run_id: str, curve: TrialCurve) -> Recorded:
    return Recorded("trial", trial.id, run_id, _end(trial) if trial.finished else 0, curve.rounds_done)


def _end(trial: TrialRecord) -> int:
    """Which end of a trial this is: its attempt, which is larger when a retried trial ends again."""
    return max(trial.attempt, 1)


def _finished(study: StudyRecord) -> int:
    """How many trials of a study have ended."""
    counts = [count for label in study.progress.values() for count in (label.search, label.confirmation)]
    return sum(number for count in counts for state, number in count.items() if state in TRIAL_FINISHED)


def _milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
