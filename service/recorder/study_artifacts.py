"""A study's files in MLflow's artifact store, which may be unreachable while MLflow itself answers.

They are written after everything else. While they are missing, the recorder's state says so, so that the next recorder
writes them too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from driftline.backoff import pauses
from service.recorder.tracking import Tracking
from service.store.recorder_state import Recorded
from service.store.store import Store

_LOG = logging.getLogger(__name__)
_KIND = "artifacts"
_FIRST_S, _LONGEST_S = 4.0, 60.0
_away: set[str] = set()  # stores of which the log says that they are unreachable


class StudyArtifacts:
    """Writes a study's files; never raises because its store is unreachable.

    Args:
        store: The store.
        study_id: Id of the study.

    Attributes:
        problem: Why the last attempt failed; "" if it did not.
    """

    def __init__(self, store: Store, study_id: str) -> None:
        self._store = store
        self._study_id = study_id
        self._between = pauses(_FIRST_S, _LONGEST_S)
        self._until = 0.0
        self.problem = ""

    def due(self, run_id: str, version: int) -> Recorded:
        """What to record when a run lacks the files of this version of the study."""
        self._until = 0.0
        return Recorded(_KIND, "", run_id, version, rounds=1)

    @property
    def waits(self) -> bool:
        """Whether the next attempt is in the future."""
        return time.monotonic() < self._until

    def put(self, labels: Tracking, files: Callable[[], Mapping[str, bytes]]) -> bool:
        """Writes the files if they are missing; returns whether they are there now."""
        entry = missing(self._store, self._study_id)
        if entry is None:
            return True
        if self.waits:
            return False
        contents = files()
        try:
            labels.artifacts(entry.run_id, contents.items())
        except Exception as error:
            where = labels.artifact_store()
            self.problem = f"the artifact store {where} cannot be written to: {first_line(error)}"
            if where not in _away:
                _LOG.warning("everything but artifacts is recorded: %s. They follow when it can", self.problem)
                _away.add(where)
            self._until = time.monotonic() + next(self._between)
            return False
        self._store.recorder_state.write(self._study_id, Recorded(_KIND, "", entry.run_id, entry.version))
        self._between, self.problem = pauses(_FIRST_S, _LONGEST_S), ""
        _away.clear()
        return True


def missing(store: Store, study_id: str) -> Recorded | None:
    """The run of a study that lacks its files, as it was recorded; None if none does."""
    return next((entry for entry in store.recorder_state.read(study_id, _KIND) if entry.rounds), None)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
