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

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from driftline.backoff import pauses
from driftline.results.show.palette import styles
from driftline.results.study_result import FILES, StudyResult, study_result
from driftline.wire.records import TRIAL_FINISHED, StudyRecord
from service.recorder.chart_view import VIEW, VIEW_TAG, labels_view, trials_view
from service.recorder.curve_rows import metric_name
from service.recorder.links import artifact_page, charts_page, server_page, table_page
from service.recorder.run_contents import (
    STUDY_TAG,
    dataset,
    frontier_rows,
    frontier_trials,
    label_params,
    milliseconds,
    note,
    shared_target,
    study_key,
    study_params,
)
from service.recorder.study_artifacts import StudyArtifacts, first_line
from service.recorder.study_lease import StudyLease
from service.recorder.tracking import Tracking, connect_to_record
from service.recorder.trial_runs import TrialRuns
from service.sqlite_address import shown_address
from service.store.recorder_state import Recorded
from service.store.store import Store
from service.store.stored_studies import Glance

_LOG = logging.getLogger(__name__)

EVERY_S = 2.0  # between two polls of the store
LONGEST_WAIT_S = 60.0  # between two attempts while MLflow is unreachable
REFRESH_S = 15.0  # between two writes of a running study's labels, at least
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of experiments with which MLflow leaves out pages that are not for training."""

_BEGUN = "begun"  # kind of what is recorded before anything is in MLflow


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
        doubts: Whether an error or the loss of the lease cut off a write, which may still reach MLflow after another
            recorder has written everything: everything is then checked again.
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
        self._lease = StudyLease(store, study_id)
        self._trials = TrialRuns(store, study_id, self._lease)
        self._refreshed = float("-inf")
        self._shown: tuple[int, str] | None = None  # version and state of the study that MLflow shows in full
        self._written: tuple[int, str] | None = None  # likewise, except perhaps for artifacts
        self._artifacts = StudyArtifacts(store, study_id)
        self._opened: tuple[Tracking, Tracking] | None = None
        self._latest: tuple[int, str, StudyResult, dict[str, bytes]] | None = None  # version, state
        self.doubts = False

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
            with self._lease.renewing():
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
        self._lease.release()

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

    def _write(self, study: StudyRecord) -> bool:
        state = self._store.recorder_state
        if not state.read(self._study_id, _BEGUN):  # from now on MLflow may have something to delete with the study
            state.write(self._study_id, Recorded(_BEGUN, "", ""))
        labels, runs = self._open(study)
        recorded = {(entry.kind, entry.key): entry for entry in state.read(self._study_id, but="trial")}
        if ("experiment", "trials") not in recorded:
            entries = (("labels", labels.experiment_id), ("trials", runs.experiment_id))
            state.write(self._study_id, *(Recorded("experiment", key, number) for key, number in entries))
        self._tell_link(study, labels)
        wrote, whole = self._trials.write(runs, study)
        if not whole:
            self._doubt()
            return wrote > 0
        refresh = not labels.shows(study_key(study)) or self._refresh_due(study, recorded)
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
        if not self._lease.keep():  # they may have replaced newer ones of another recorder
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
        self._opened = None  # look up again what was written, and keep one run of each

    def _open(self, study: StudyRecord) -> tuple[Tracking, Tracking]:
        if self._opened is None:
            client, (labels, trials) = self._connect(self._uri), experiments(study.name, study.id)
            tags = {STUDY_TAG: study.id, **KIND}
            opened = (
                Tracking(client, labels, self._artifact_root, tags),
                Tracking(client, trials, self._artifact_root, tags),
            )
            entries = self._store.recorder_state.read(self._study_id)
            if not any(tracking.has(entry.run_id) for entry in entries for tracking in opened):
                self._store.recorder_state.clear(self._study_id, {_BEGUN})  # MLflow's database is new: write all again
            self._opened = opened
        return self._opened

    def _tell_link(self, study: StudyRecord, labels: Tracking) -> None:
        """Stores the study's URL in MLflow; None if no server shows the database to which it is written."""
        url = server_page(self._uri, labels.experiment_id, VIEW, public_url=self._public_url)
        if study.mlflow_url != url:
            self._store.studies.set_mlflow_url(self._study_id, url)

    def _refresh_due(self, study: StudyRecord, recorded: Mapping[tuple[str, str], Recorded]) -> bool:
        """Whether to write labels and artifacts: at first, when the finished trials have doubled, and at the end."""
        if study.finished:
            ended = recorded.get(("ended", ""))
            return ended is None or ended.version != study.version
        entry = recorded.get(("study", ""))
        return entry is None or _finished(study) >= max(2 * entry.rounds, 1)

    def _refresh(self, labels: Tracking, runs: Tracking, study: StudyRecord) -> bool:
        """Write the study and its labels; False if the lease was lost, or a late run took the place of the study's."""
        if not self._lease.keep(force=True):
            return False
        result = self._result(study)
        names = list(result.document["methods"])
        created = milliseconds(study.created_at)
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
            labels.end(study_run, status, milliseconds(study.finished_at or study.updated_at))
            for experiment in (labels, runs):
                experiment.keep_one_each()
        if labels.run_id(key) != study_run or not self._lease.keep(force=True):
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
        rows = frontier_rows(result.document["methods"][label], result.reading)
        labels.write(run_id, rows, timestamp_ms=started_ms, params=label_params(study, result, label))
        labels.uses(run_id, dataset(study))
        if study.finished:
            labels.end(run_id, "FINISHED", milliseconds(study.finished_at or study.updated_at))
        return key

    def _take(self) -> bool:
        """Take the lease; False if another recorder has it. If the lease was lost before, doubts what is in MLflow."""
        if self._lease.keep(force=True):
            return True
        if not self._lease.take():
            return False
        if self._opened is not None:
            self._doubt()
        return True

    def _current(self, *, finished: bool = False) -> bool:
        study = self._store.studies.get(self._study_id)
        return self.shows(study) and (study.finished or not finished)


def experiments(name: str, study_id: str) -> tuple[str, str]:
    """Names of a study's two experiments: for its labels, and for its trials."""
    return f"{name} {study_id[-6:]}", f"{name} {study_id[-6:]} trials"


def _finished(study: StudyRecord) -> int:
    """How many trials of a study have ended."""
    counts = [count for label in study.progress.values() for count in (label.search, label.confirmation)]
    return sum(number for count in counts for state, number in count.items() if state in TRIAL_FINISHED)
