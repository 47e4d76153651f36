"""`Client`: a service elsewhere when there is one, this process when there is none; the same lines serve both."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from driftline.errors import NotFound
from driftline.sdk import remote as sdk
from driftline.sdk.job import Job
from driftline.sdk.progress import Progress
from driftline.study.spec import Study
from service.embedded.run import EmbeddedRun
from service.settings import settings


class EmbeddedJob(Job):
    """A study that runs in this process, over an output folder.

    Args:
        run: The run.

    Attributes:
        folder: Where its results are.
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
        """Waits until the study has finished, and writes its files.

        Ctrl-C stops it cleanly: packs write their checkpoints, and the same study into the same folder goes on.
        A second one waits for nothing.

        Args:
            progress: Show it on stderr.
            timeout_s: Seconds after which to give up waiting (the study goes on); None waits for ever.

        Raises:
            StudyFailed: It has failed.
            TimeoutError: It has not finished in time.
            KeyboardInterrupt: Ctrl-C, after the clean stop.
        """
        try:
            super().wait(progress, timeout_s)
        except KeyboardInterrupt:
            self._stop()
            raise
        if progress:
            print("Writing the frontier's files and MLflow ...", file=sys.stderr, flush=True)
        self._run.finish()
        return self

    def extend(self, *, trials_per_method: int | None = None, seeds: int | None = None) -> Job:
        """Gives the study a larger budget, and goes on with it."""
        super().extend(trials_per_method=trials_per_method, seeds=seeds)
        self._run.start()
        return self

    def retry(self, *trials: str) -> Job:
        """Runs FAILED trials again, and goes on with the study."""
        super().retry(*trials)
        self._run.start()
        return self

    def _watch(self, shown: Progress | None) -> None:
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


def _take_signals_back() -> None:
    """Gives SIGTERM back to whoever had it: Ray, when it starts, has it abort the process with a trace of its own."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None:  # None: not Python's to begin with
            signal.signal(signal.SIGTERM, handler)


class Client(sdk.Client):
    """Where studies run: a service when there is one, else this process.

    Args:
        url: Address of a service; DRIFTLINE_URL by default. Without either, studies run embedded.
        token: Bearer token; DRIFTLINE_TOKEN by default.
        out: Embedded: folder under which each study keeps its files in a folder of its name; DRIFTLINE_OUT or "out".
        transport: Instead of the network, for tests of your own: `httpx.MockTransport`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        out: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        found = settings()
        self._runs: dict[Path, EmbeddedRun] = {}
        self._closed = threading.Event()
        self._out = Path(out) if out is not None else found.out
        address = url or found.url
        self.embedded = address is None and transport is None
        if not self.embedded:
            super().__init__(address or "http://driftline", token or found.token, transport=transport)

    def submit(self, study: Study, key: str | None = None, *, out: str | Path | None = None) -> Job:
        """Submits a study; embedded, it starts in this process.

        Args:
            study: What to run.
            key: With a service: the same key again gives the study that was submitted under it before.
            out: Embedded: the study's folder; by default one of its name under the client's.

        Returns:
            The job. The same study into the same folder goes on where it stopped, or is finished at once.

        Raises:
            InvalidSpec: The study cannot be right; the message names the key.
            Conflict: The folder is another study's.
        """
        if not self.embedded:
            return super().submit(study, key)
        study.check()
        folder = Path(out) if out is not None else self._out / study.name
        return self._start(folder, study)

    def job(self, study: str) -> Job:
        """A study that was submitted before: its id or name; embedded, the name of its folder under the client's.

        Raises:
            NotFound: There is none; the message names those there are.
        """
        if not self.embedded:
            return super().job(study)
        folder = self._out / study
        if not (folder / "driftline.db").is_file():
            names = ", ".join(found.name for found in self._folders()) or "none yet"
            raise NotFound(f"no study {study!r} under {self._out} (have: {names})")
        return self._start(folder, None, start=False)

    def jobs(self) -> list[Job]:
        """All studies, newest first."""
        if not self.embedded:
            return super().jobs()
        return [self._start(folder, None, start=False) for folder in self._folders()]

    def close(self) -> None:
        """Closes the connection; embedded, stops what runs, cleanly."""
        if not self.embedded:
            super().close()
        for run in self._runs.values():
            run.close()
        self._runs.clear()
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_with_main(self) -> None:
        """Stops what runs when the program ends without `close`; before Ray's own exit handler ends it unsaved."""
        while threading.main_thread().is_alive():
            if self._closed.wait(0.2):
                return
        for folder, run in self._runs.items():
            if run.record().state in ("QUEUED", "RUNNING"):
                print(f"Stopping the study in {folder}: nobody has waited for it ...", file=sys.stderr, flush=True)
        self.close()

    def _folders(self) -> list[Path]:
        found = [path.parent for path in self._out.glob("*/driftline.db")]
        return sorted(found, key=lambda folder: -folder.stat().st_ctime)

    def _start(self, folder: Path, study: Study | None, *, start: bool = True) -> EmbeddedJob:
        place = folder.resolve()
        if place not in self._runs:
            run = EmbeddedRun(folder, study)
            if not self._runs:
                self._closed.clear()
                threading.Thread(target=self._close_with_main, name="driftline-exit").start()
            self._runs[place] = run
        elif study is not None:
            self._runs[place].claim(study)
        if start:
            self._runs[place].start()
        return EmbeddedJob(self._runs[place])
