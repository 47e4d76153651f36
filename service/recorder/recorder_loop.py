"""Records all studies of a service in a child process: MLflow and matplotlib take 140 MiB."""

from __future__ import annotations

import functools
import json
import logging
import sys
import threading

from driftline.errors import Unavailable
from service.child_process import ChildProcess, answer_lines
from service.recorder import study_recorder
from service.recorder.all_studies import StudiesRecorder
from service.store.store import Store

IDLE_S = 60.0
"""Seconds without anything to record after which the process ends."""

SYNC_S = 3600.0
"""Seconds that recording everything new may take; after that, another process continues."""

_LOG = logging.getLogger(__name__)


class RecorderLoop:
    """Keeps MLflow up to date with all studies. May be killed at any time, and so may its process.

    Args:
        store: The store, in which it sees whether there is something new.
        database: URL of the store's database, for the process.
        tracking_uri: URL of an MLflow server, or ``sqlite:///`` and a file.
        artifact_root: URI or folder for artifacts of new experiments; None leaves it to the server.
        public_url: Address of the MLflow server for browsers, if it differs from `tracking_uri`.
        idle_seconds: How long the process waits for something to record.
    """

    def __init__(
        self,
        store: Store,
        database: str,
        tracking_uri: str,
        artifact_root: str | None = None,
        public_url: str = "",
        *,
        idle_seconds: float = IDLE_S,
    ) -> None:
        self._store = store
        self._line = json.dumps([database, tracking_uri, artifact_root, public_url])  # passwords: not in the arguments
        self._process = ChildProcess(__name__, str(idle_seconds), what="records in MLflow")
        self._shown: object = None  # state and version of all studies when MLflow showed them in full

    def run(self, stop: threading.Event) -> None:
        """Sync repeatedly until `stop` is set; never raises. Waits longer while its process cannot work."""
        retries = study_recorder.retries()
        while not stop.is_set():
            wait = study_recorder.EVERY_S
            try:
                self.sync()
                retries = study_recorder.retries()
            except Exception as error:
                wait = next(retries)
                _LOG.warning("nothing could be recorded, next attempt in %.0f s: %s", wait, error)
            stop.wait(wait)

    def sync(self) -> None:
        """Lets the process write what is new in any study; does nothing if nothing is new.

        Raises:
            Unavailable: The process has died, or cannot read the store.
        """
        studies = self._store.studies.glances()
        if studies == self._shown and not self._store.deletions.pending("mlflow", 1):
            return
        self._shown = None
        answer = self._process.ask(self._line, SYNC_S)
        if not answer:
            raise Unavailable("the process that records in MLflow has died")
        outcome = json.loads(answer)
        if "problem" in outcome:
            raise Unavailable(outcome["problem"])
        if failed := outcome.get("failed"):
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            _LOG.warning("not everything could be recorded: %s%s", failed[0], more)
        if outcome["complete"]:
            self._shown = studies

    def close(self) -> None:
        """Ends the process; the next one writes what is missing."""
        self._process.end()


@functools.cache
def _recorder(line: str) -> StudiesRecorder:
    database, tracking_uri, artifact_root, public_url = json.loads(line)
    return StudiesRecorder(Store(database), tracking_uri, artifact_root, public_url=public_url)


def _answer(line: str) -> str:
    try:
        recorder = _recorder(line)
        recorder.sync()
    except Exception as error:
        return json.dumps({"problem": f"{error}" or type(error).__name__})
    return json.dumps({"complete": recorder.complete, "failed": recorder.failed})


if __name__ == "__main__":
    answer_lines(_answer, float(sys.argv[1]))
