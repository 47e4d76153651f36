"""Writes a folder's result files and MLflow's database in a second process, beside the one that runs the study.

Training and the API then never wait for MLflow and pictures, and the process that runs the study imports neither. The
recorder reads the folder's database, as it does in a service, so that it may be killed at any time: the next one
continues. It ends with its parent, or when it has finished.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

from service.embedded.folder import DATABASE, LOG, put_all
from service.embedded.folder_results import artifact_root, mlflow_uri
from service.embedded.moved_folder import adopt_artifacts
from service.garbage import collect_after_loading, loaded
from service.log_file import LogFile
from trainers.own_files import append

_FINISH = "finish\n"


class RecorderProcess:
    """A recorder at work in its own process.

    Args:
        folder: The output folder.
        study_id: Id of its study.

    Attributes:
        finishing: Whether it was told to finish, after which it may have ended.
    """

    def __init__(self, folder: Path, study_id: str) -> None:
        self.finishing = False
        command = [sys.executable, "-P", "-W", "ignore", "-m", "service.embedded.recorder_process"]
        with os.fdopen(append(folder / LOG), "ab") as log:
            self._process = subprocess.Popen(
                [*command, str(folder), study_id],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which ends this process
            )

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._process.poll() is None

    def begin_finishing(self) -> None:
        """Makes it write the result files and everything that MLflow lacks, and end."""
        assert self._process.stdin is not None
        if self.finishing:
            return
        self.finishing = True
        with contextlib.suppress(BrokenPipeError), self._process.stdin as lines:  # broken: it has died
            lines.write(_FINISH)

    def finish(self) -> bool:
        """Makes it finish, and waits for that.

        Returns:
            Whether the result files are written. The next recorder of this folder writes what MLflow lacks.
        """
        self.begin_finishing()
        try:
            return self._process.wait() == 0
        except BaseException:  # Ctrl-C
            self._process.kill()
            raise

    def close(self, wait_s: float) -> None:
        """Ends it; after `wait_s` seconds it is killed, which loses nothing."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def record(folder: Path, study_id: str, stop: threading.Event, finishing: threading.Event) -> None:
    """Records a folder's study.

    Args:
        folder: The output folder.
        study_id: Id of its study.
        stop: Set to end.
        finishing: Set before `stop` to write the result files, and all that MLflow lacks, before the end.
    """
    from service.recorder.study_recorder import EVERY_S, Recorder
    from service.store.store import Store

    loaded()
    store = Store(folder / DATABASE)
    try:
        adopt_artifacts(folder)
        recorder = Recorder(store, study_id, mlflow_uri(folder), artifact_root(folder))
        recorder.run(stop)
        while not stop.wait(EVERY_S):  # the study has ended; it may be continued
            recorder.run(stop)
        if finishing.is_set():
            put_all(folder, recorder.files())
            recorder.finish()
    finally:
        store.close()


def _main(folder: Path, study_id: str) -> None:
    """Records until standard input ends; if its last line is `_FINISH`, finishes first."""
    collect_after_loading()
    stop, finishing = threading.Event(), threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line == _FINISH:
                finishing.set()
        stop.set()

    threading.Thread(target=listen, name="driftline-parent", daemon=True).start()
    _log_to(folder / LOG)
    record(folder, study_id, stop, finishing)


def _log_to(file: Path) -> None:
    logger = logging.getLogger("service")
    logger.addHandler(LogFile(file))
    logger.setLevel(logging.INFO)
    logger.propagate = False


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2])
    logging.shutdown()
    os._exit(0)  # everything is written; a normal exit of Python with MLflow loaded takes another second
