"""Studies that run in this process; `driftline.Client` uses them if it is given no service."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from driftline.client.api_client import ApiClient
from driftline.client.environment import environment
from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.results.modelled_time import Time
from driftline.sdk.frames import CurvesByTrial, TrialRecords
from driftline.sdk.frontier import Frontier
from driftline.sdk.job import RESTING, Job
from driftline.sdk.progress import ProgressDisplay
from driftline.study.spec import Study
from driftline.study.theory_spaces import derived
from driftline.wire.budgets import CheckedStudy
from driftline.wire.logs import LogLine
from driftline.wire.records import StudyRecord
from service.embedded import timing
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.folder import is_in_use
from service.embedded.folder_results import (
    log_stored_models,
    stored_curves,
    stored_frontier,
    stored_log,
    stored_study,
    stored_trials,
)
from service.embedded.program_probe import probed
from service.embedded.room import memory_remark, require_room

WRITING = "Writing the frontier's files and MLflow ..."


class EmbeddedJob(Job):
    """A study that runs in this process, over an output folder.

    Args:
        run: The run.

    Attributes:
        folder: The output folder.
    """

    def __init__(self, run: EmbeddedRun) -> None:
        super().__init__(run.api, run.study_id)
        self._run = run
        self.folder = run.folder

    @property
    def mlflow_url(self) -> str | None:
        """The command that shows its curves in MLflow, since no server runs yet; None while nothing is recorded."""
        return f"driftline ui {shlex.quote(str(self.folder))}" if self._run.recorded() else None

    def wait(self, progress: bool = False, timeout_s: float | None = None) -> Job:
        """Waits until the study has finished and its files are written; see `ended`."""
        self.ended(progress, timeout_s)
        if progress:
            print(WRITING, file=sys.stderr, flush=True)
        self._run.finish()
        return self

    def ended(self, progress: bool = False, timeout_s: float | None = None) -> None:
        """Waits until the study has finished.

        Ctrl-C stops the study cleanly: packs write their checkpoints, and submitting the same study into the same
        folder resumes it. A second Ctrl-C waits for nothing.

        Args:
            progress: Whether to show the progress on stderr.
            timeout_s: Seconds after which to give up waiting (the study goes on); None waits forever.

        Raises:
            StudyFailed: The study has failed.
            TimeoutError: The study has not finished in time.
            KeyboardInterrupt: Ctrl-C, after the clean stop.
        """
        try:
            super().wait(progress, timeout_s)
        except KeyboardInterrupt:
            self._stop()
            raise

    def resume(self) -> Job:
        """Continues a paused, failed or interrupted study; repeats no finished trial."""
        super().resume()
        self._run.start()
        return self

    def extend(self, *, trials_per_method: int | None = None, seeds: int | None = None) -> Job:
        """Gives the study a larger budget, and continues it."""
        super().extend(trials_per_method=trials_per_method, seeds=seeds)
        self._run.start()
        return self

    def retry(self, *trials: str) -> Job:
        """Runs FAILED trials again, and continues the study."""
        super().retry(*trials)
        self._run.start()
        return self

    def delete(self) -> None:
        """Refuses: a local study is its output folder.

        Raises:
            Conflict: Always.
        """
        raise Conflict(f"local studies are folders: delete {self.folder} instead")

    def _log_lines(self, after: int) -> Iterable[LogLine]:
        return stored_log(self.folder, after)

    def _watch(self, shown: ProgressDisplay | None) -> None:
        _take_signals_back()
        for line in self._run.said():
            if shown is not None:
                shown.say(line)

    def _stop(self) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(
                "Stopping: packs write their checkpoints (Ctrl-C again quits at once) ...", file=sys.stderr, flush=True
            )
        try:
            self._run.stop()
        except KeyboardInterrupt:
            self._run.abandon()
            raise


class WatchedJob(Job):
    """The study of an output folder that another process may be running; can only be read.

    An unfinished study on which no process works is shown as paused.

    Args:
        folder: The output folder.

    Raises:
        NotFound: The folder holds no study.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = stored_study(folder).id

    @property
    def _api(self) -> ApiClient:  # type: ignore[override]
        """Refuses requests that change the study.

        Raises:
            Conflict: Always.
        """
        raise Conflict(f"{self.folder} must be free to change its study: wait until the process that runs it has ended")

    def record(self) -> StudyRecord:
        """The study as it is stored now."""
        in_use = is_in_use(self.folder)  # asked first: a study that ends meanwhile is not taken for a paused one
        record = stored_study(self.folder)
        return record if in_use or record.state in RESTING else record.model_copy(update={"state": "PAUSED"})

    def trials(self, label: str | None = None, phase: str | None = None, state: str | None = None) -> TrialRecords:
        """Its trials, or those of a label, a phase or a state."""
        trials = [
            trial
            for trial in stored_trials(self.folder)
            if label in (None, trial.label) and phase in (None, trial.phase) and state in (None, trial.state)
        ]
        return TrialRecords(trials, self._metric)

    def curves(self, *trials: str) -> CurvesByTrial:
        """Curves by trial id, one list per metric; of all trials unless some are named. Has ``to_frame()``."""
        return CurvesByTrial(stored_curves(self.folder, trials))

    def frontier(self, *others: Job, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
        """The frontiers of all labels so far; see `Job.frontier`."""
        if others:
            return super().frontier(*others, quality=quality, cost=cost)
        return stored_frontier(self.folder, quality, cost)

    def compare(self, first: str, second: str) -> dict[str, Any]:
        """Compares two labels at equal budgets; see `Job.compare`."""
        return self.frontier().compare(first, second)

    def _log_lines(self, after: int) -> Iterable[LogLine]:
        return stored_log(self.folder, after)


def _take_signals_back() -> None:
    """Restores Python's handler of SIGTERM: Ray, when it starts, installs one that aborts the process with a trace."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None:  # None: the handler was not installed from Python
            signal.signal(signal.SIGTERM, handler)


class LocalStudies:
    """Studies that run in this process, each over an output folder.

    Args:
        out: Folder under which each study keeps its files in a folder of its name; DRIFTLINE_OUT or "out" by default.
    """

    def __init__(self, out: str | Path | None = None) -> None:
        self._runs: dict[Path, EmbeddedRun] = {}
        self._closed = threading.Event()
        self._out = Path(out) if out is not None else environment().out

    def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> Job:
        """Starts or resumes a study; see `driftline.Client.submit`. The folder takes the place of `key`."""
        study.check()
        return self._start(Path(out) if out is not None else self._out / study.name, study)

    def validate(self, study: Study, *, estimate: bool = True) -> CheckedStudy:
        """Checks a study, and times a few rounds of it here; see `driftline.Client.validate`."""
        study = derived(study)
        remarks = study.check()
        remarks += memory_remark(study)
        try:
            require_room(study)
        except InvalidSpec as error:  # it may be meant for another computer
            remarks.append(f"{error.path}: this computer cannot run the study: {error.problem}")
        if study.resources.pool is not None:
            remarks.append("resources.pool: ignored, this computer has no pools of workers")
        checked = CheckedStudy(
            spec=study.to_json(), fingerprint=study.fingerprint(), remarks=remarks, outlook=study.outlook()
        )
        if not estimate:
            return checked
        return checked.estimated(timing.estimate(study) if study.program is None else probed(study))

    def job(self, study: str) -> Job:
        """The study in the folder of this name; see `driftline.Client.job`."""
        folder = self._out / study
        if not (folder / "driftline.db").is_file():
            names = ", ".join(folder.name for folder in self._folders()) or "none yet"
            raise NotFound(f"no study {study!r} under {self._out} (have: {names})")
        return self._found(folder)

    def jobs(self) -> list[Job]:
        """All studies, newest first."""
        return [self._found(folder) for folder in self._folders()]

    def records(self) -> list[StudyRecord]:
        """All studies as they are stored now, newest first."""
        return [job.record() for job in self.jobs()]

    def owners(self) -> dict[str, str]:
        """No owners: folders do not record who ran them."""
        return {}

    def frontier(self, folder: Path, quality: str | None, cost: str | Time | None) -> Frontier:
        """The frontiers in an output folder; see `driftline.frontier`."""
        return stored_frontier(folder, quality, cost)

    def log_models(self, folder: Path, label: str | None, tell: Callable[[str], object]) -> list[str]:
        """Logs the models of an output folder; see `driftline.log_models`."""
        return log_stored_models(folder, label, tell)

    def close(self) -> None:
        """Stops all running studies cleanly."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()
        self._closed.set()

    def _close_with_main(self) -> None:
        """Stops running studies if the program ends without `close`, before Ray's exit handler ends them unsaved."""
        while threading.main_thread().is_alive():
            if self._closed.wait(0.2):
                return
        for folder, run in self._runs.items():
            if run.record().state in ("QUEUED", "RUNNING"):
                print(
                    f"Stopping the study in {folder}: the program ended without waiting for it ...",
                    file=sys.stderr,
                    flush=True,
                )
        self.close()

    def _folders(self) -> list[Path]:
        folders = [path.parent for path in self._out.glob("*/driftline.db")]
        return sorted(folders, key=lambda folder: -folder.stat().st_ctime)

    def _found(self, folder: Path) -> Job:
        """The study of a folder; read-only while another process or client works in it."""
        busy = folder.resolve() not in self._runs and is_in_use(folder)
        return WatchedJob(folder) if busy else self._start(folder, None, start=False)

    def _start(self, folder: Path, study: Study | None, *, start: bool = True) -> EmbeddedJob:
        path = folder.resolve()
        if path not in self._runs:
            run = EmbeddedRun(folder, study)
            if not self._runs:
                self._closed.clear()
                threading.Thread(target=self._close_with_main, name="driftline-exit").start()
            self._runs[path] = run
        elif study is not None:
            self._runs[path].claim(study)
        if start:
            self._runs[path].start()
        return EmbeddedJob(self._runs[path])
