"""Runs a study in this process: app, scheduler and driver of a service, over one output folder; a second one records.

    FOLDER/driftline.db     everything that was measured        FOLDER/frontier.{json,html,png}, trials.csv
    FOLDER/mlflow.db        the same for the MLflow UI          FOLDER/checkpoints, study.yaml, driver.log

The folder belongs to one study: the same study resumes in it, or shows its results; another study is rejected.
"""

from __future__ import annotations

import logging
import os
import queue
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from driftline.client.driver_client import DriverClient
from driftline.errors import Conflict, InvalidSpec, NotFound, Unavailable
from driftline.results.study_result import FILES
from driftline.study.spec import Study
from driftline.study.task_facts import pinned
from driftline.wire.records import StudyRecord
from service.api.app import create_app
from service.api.auth.tokens import Tokens
from service.api.http_server import Server
from service.embedded.folder import CHECKPOINTS, LOG, Folder, put_all
from service.embedded.folder_results import stored_result
from service.embedded.program_files import TRIALS, keep_files, program_folder, remove_work
from service.embedded.recorder_process import RecorderProcess
from service.embedded.room import memory_remark, require_own_ray, require_room
from service.embedded.thread_launcher import ThreadLauncher
from service.log_file import LogFile
from service.scheduler.loop import Scheduler
from service.settings import hang_seconds
from service.settings import ray_address as ray_cluster

if TYPE_CHECKING:
    from service.driver.ray.early_ray import EarlyRay

_LOG = logging.getLogger("service")
RECORDER_STOP_S = 30.0
_SURE_S = 10.0
"""Seconds without a failed write after which the disk has room again: on a full disk, small writes may succeed."""
_turn = threading.Lock()  # one study at a time uses Ray; the others of this process are queued
_ran_in: set[int] = set()  # ids of the processes that have run a study: this one, and its ancestors by fork


class EmbeddedRun:
    """One study over one output folder, served and run by this process.

    Args:
        folder: The output folder.
        study: The study; None takes the one that the folder holds.
        ray_address: A Ray cluster to use; None starts a local one, unless DRIFTLINE_RAY_ADDRESS names one.
        source: Text of the study's file, to be kept in the folder.
        early_ray: A Ray that is being started here already, for this study alone; ends with its driver, or this run.
        cores: CPU cores of a local Ray; None uses all that this process may use.

    Attributes:
        folder: The output folder.
        api: Connection to the app of this process.
        study_id: Id of the study.
        abandoned: Whether its driver was left behind.

    Raises:
        NotFound: No study was given and the folder holds none.
        InvalidSpec: The folder is another study's or holds foreign files, or this computer has no room for a pack.
        Conflict: Another process works in the folder.
    """

    def __init__(
        self,
        folder: Path,
        study: Study | None = None,
        *,
        ray_address: str | None = None,
        source: str | None = None,
        early_ray: EarlyRay | None = None,
        cores: int | None = None,
    ) -> None:
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._recorder: RecorderProcess | None = None
        self._started = False
        self._failed_at: float | None = None  # time at which writing failed last, until it works again
        self.abandoned = False
        self._launcher: ThreadLauncher | None = None
        self._recorder_stop_s = RECORDER_STOP_S
        self._ray_address = ray_address or ray_cluster()
        self._early_ray = early_ray
        self._cores = cores
        if cores is not None and self._ray_address is not None:
            raise InvalidSpec("--cores", f"is for a Ray on this computer, got one at {self._ray_address}: leave it out")
        if study is not None:
            study = study.model_copy(update={"task": pinned(study.task, Path.cwd())})
            if self._ray_address is None:
                require_room(study, cores)
                memory_remark(study)
            else:
                require_own_ray(study, self._ray_address)
        self._folder = Folder(folder, create=study is not None)
        self.folder = folder
        self._closers: list[Callable[[], None]] = [self._folder.close]
        self._closers.append(self._end_early_ray)
        try:
            self._open(study, source)
        except BaseException:
            self.close()
            raise

    def _open(self, study: Study | None, source: str | None) -> None:
        store = self._folder.store
        if study is not None:
            self._folder.claim(study)
            if study.program is not None:
                keep_files(study.program, self.folder)
        if source is not None:
            self._folder.keep_source(source)
        self._log_to(self.folder / LOG)
        self._tokens, token = Tokens.random()
        server = Server(create_app(store, self._tokens))
        self._closers.append(server.close)
        self._server = server
        self.api = self._connect(token)
        self._closers.append(self.api.close)
        studies = self.api.studies()
        if studies:
            self.study_id = studies[0].id
            if study is not None:
                store.studies.set_resources(self.study_id, study.to_json()["resources"])
        elif study is not None:
            self.study_id = self.api.create(study.to_json(), key="embedded").id
        else:
            raise NotFound(f"no study in {self.folder}: run one into it with `driftline run STUDY.yaml --out DIR`")
        if study is None and self._ray_address is not None:
            require_own_ray(self.record().study, self._ray_address)

    def claim(self, study: Study) -> None:
        """Checks that the folder belongs to this study.

        Raises:
            InvalidSpec: It belongs to another study.
        """
        self._folder.claim(study)

    def start(self) -> None:
        """Starts the scheduler, which starts the driver, and the recorder, unless the study has finished.

        Returns at once.

        Raises:
            Conflict: The study was cancelled for good, or this process is a fork of one that has run a study.
        """
        record = self.record()
        if record.state in ("CANCELLED", "CANCELLING"):
            raise Conflict(f"the study in {self.folder} was cancelled for good: choose another folder with --out")
        if record.state == "SUCCEEDED":
            return
        if self._started:
            self._recording()
            return
        if _ran_in - {os.getpid()}:  # Ray would wait for threads that a fork does not have
            raise Conflict(
                "a study must not run in a fork of a process that has run one: start this process with"
                ' multiprocessing.get_context("spawn"), or as a program of its own'
            )
        if record.state in ("PAUSING", "PAUSED", "FAILED"):  # PAUSING: killed before the study had stopped
            self.api.resume(self.study_id)
        self._started = True
        _ran_in.add(os.getpid())
        self._launcher = launcher = ThreadLauncher(self._connect, self._drive)
        scheduler = Scheduler(
            self._folder.store, launcher, self._tokens.driver, every_s=0.25, start_seconds=float("inf")
        )
        scheduler.start()
        self._closers += [self._end_recording, launcher.close, scheduler.close]
        self._recording()

    def stop(self) -> None:
        """Pauses the study: packs write their checkpoints, the driver ends; returns when that is done."""
        if self.record().state in ("PENDING", "QUEUED", "RUNNING"):
            try:
                self.api.pause(self.study_id)
            except Unavailable as error:  # a full disk: nothing more can be stored
                _LOG.warning("packs write no more checkpoints: %s", error)
                self.abandon()
                return
        while self.record().state in ("PAUSING", "RUNNING"):
            time.sleep(0.2)

    def abandon(self) -> None:
        """Makes `close` return without waiting: the driver is left behind, and packs write no more checkpoints."""
        self.abandoned = True
        self._recorder_stop_s = 0.0
        if self._launcher is not None:
            self._launcher.stop_s = 0.0

    def begin_finishing(self) -> None:
        """Lets the recorder begin the last writes, for which `finish` waits."""
        self._recording().begin_finishing()

    def finish(self) -> None:
        """Brings files and MLflow up to date with the store; called when a study has ended, harmless at any time."""
        recorder, self._recorder = self._recording(), None
        if not recorder.finish():
            _LOG.error("the recorder failed; MLflow is brought up to date when the folder is opened again")
            result = stored_result(self._folder.store, self.study_id)
            put_all(self.folder, {name: result.file(name) for name in FILES})

    def shown(self) -> bool:
        """Whether all result files exist, and MLflow's database has the study as it is now."""
        files = (*FILES, "mlflow.db")
        return self._recorded_in_full() and all((self.folder / name).is_file() for name in files)

    def recorded(self) -> bool:
        """Whether the study is in the folder's MLflow database."""
        return any(
            entry.key == "labels" for entry in self._folder.store.recorder_state.read(self.study_id, "experiment")
        )

    def summary(self) -> str:
        """Text that says where the results are, and how to open them."""
        folder = shlex.quote(str(self.folder))
        return (
            f"\nIn {self.folder}: {', '.join(FILES)}\nEverything measured is in driftline.db.\n"
            f"Open the page:  driftline open {folder}\nOpen it in the MLflow UI:  driftline ui {folder}"
            if self.shown()
            else f"The MLflow UI cannot show it, because recording failed; {LOG} says why. "
            f"Record it again:  driftline resume {folder}"
        )

    def _recorded_in_full(self) -> bool:
        record, entries = self.record(), self._folder.store.recorder_state.read(self.study_id, "ended")
        return any(entry.version == record.version for entry in entries) if record.finished else self.recorded()

    def record(self) -> StudyRecord:
        """The study as it is stored now."""
        return self._folder.store.studies.get(self.study_id)

    def close(self) -> None:
        """Ends everything that this run has started; the results stay."""
        for closer in reversed(self._closers):
            try:
                closer()
            except Exception:
                _LOG.exception("an error while closing; closing continues")
        self._closers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def said(self) -> Iterator[str]:
        """The progress messages since the last call, and when writing begins to fail or works again."""
        now = time.monotonic()
        if self._folder.store.session.database.writes_fail:
            if self._failed_at is None:
                yield (
                    f"nothing can be written in {self.folder}: free some space on its disk; nothing reported is lost, "
                    "and the study goes on when there is room (or stop it with Ctrl-C and resume it later)"
                )
            self._failed_at = now
        elif self._failed_at is not None and now - self._failed_at > _SURE_S:
            self._failed_at = None
            yield f"{self.folder} can be written again: the study goes on"
        while True:
            try:
                yield self._messages.get_nowait()
            except queue.Empty:
                return

    def _say(self, text: str) -> None:
        _LOG.info("%s", text)
        self._messages.put(text)

    def _connect(self, token: str) -> DriverClient:
        return DriverClient(self._server.url, token, socket=self._server.socket)

    def _end_early_ray(self) -> None:
        """Ends a Ray that no driver has taken; a driver ends its own, and one that is abandoned still uses it."""
        if self._early_ray is not None:
            self._early_ray.close()

    def _drive(self, client: DriverClient, study_id: str, stop: threading.Event) -> None:
        from service.driver.lifecycle import DriverOptions, run_driver

        early, self._early_ray = self._early_ray, None
        if not self._take_turn(study_id, stop):
            return
        try:
            remove_work(self.folder)
            options = DriverOptions(
                folder=self.folder / CHECKPOINTS,
                trials=str((self.folder / TRIALS).resolve()),
                files=program_folder(self.folder),
                address=self._ray_address,
                early_ray=early,
                num_cpus=self._cores,
                hang_s=hang_seconds(),
                progress=self._say,
            )
            run_driver(client, study_id, stop, options)
        finally:
            _turn.release()

    def _take_turn(self, study_id: str, stop: threading.Event) -> bool:
        """Waits until no other study of this process runs; False if it was told to stop first."""
        if _turn.acquire(blocking=False):
            return True
        reason = "waits until another study of this process has finished: one study at a time uses Ray"
        self._folder.store.leases.settle(study_id, "QUEUED", reason)
        self._say(f"this study {reason}")
        while not stop.is_set():
            if _turn.acquire(timeout=0.2):
                return True
        return False

    def _recording(self) -> RecorderProcess:
        """The recorder; started if none is running and none was told to finish."""
        if self._recorder is None or not (self._recorder.alive or self._recorder.finishing):
            self._recorder = RecorderProcess(self.folder, self.study_id)
        return self._recorder

    def _end_recording(self) -> None:
        if self._recorder is not None:
            self._recorder.close(self._recorder_stop_s)

    def _log_to(self, file: Path) -> None:
        handler = LogFile(file)
        _LOG_FILES.add(handler)
        self._closers.append(lambda: _LOG_FILES.close(handler))


class _LogFiles:
    """The log files of all open runs: while there are any, messages of the package go to them alone."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lock = threading.Lock()
        self._open: set[logging.Handler] = set()
        self._before = (logger.level, logger.propagate)

    def add(self, file: logging.Handler) -> None:
        with self._lock:
            if not self._open:
                self._before = (self._logger.level, self._logger.propagate)
            self._open.add(file)
            self._logger.addHandler(file)
            self._logger.setLevel(logging.INFO)
            self._logger.propagate = False

    def close(self, file: logging.Handler) -> None:
        with self._lock:
            self._open.discard(file)
            self._logger.removeHandler(file)
            if not self._open:
                level, self._logger.propagate = self._before
                self._logger.setLevel(level)
        file.close()


_LOG_FILES = _LogFiles(_LOG)
