"""The rungs of a study: the values of its search trials there, their checkpoints, and packs that end there."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from driftline.client.driver_client import DriverClient
from driftline.study.spec import Study
from driftline.wire.curve_codec import Columns
from driftline.wire.driver_messages import TrialResult
from driftline.wire.records import TrialRecord
from service.driver import checkpoints
from service.driver.search.actions import LaunchPack
from service.driver.search.chosen import CURVES_AT_ONCE
from service.driver.search.outcome import needed, rung_result
from service.driver.search.rules import RULES
from service.driver.search.rungs import arrivals, prospects, reached
from service.driver.search.state import StudyTable

_LOG = logging.getLogger(__name__)


class Ladder:
    """Keeps what trials have reached, and may still reach, in the table (`reached`, `arrivals`); idle without rungs.

    Args:
        client: Connection to the API, for the curves.
        study_id: Id of the study.
        study: Its specification.
        table: Its trials.
        folder: Folder of its checkpoints.
    """

    def __init__(self, client: DriverClient, study_id: str, study: Study, table: StudyTable, folder: str) -> None:
        self._client = client
        self._study_id = study_id
        self._study = study
        self._table = table
        self._folder = folder
        self._rungs = study.rungs
        self._used = any(len(rungs) > 1 for rungs in self._rungs.values())
        self._looks_ahead = RULES[study.budget.rung_rule].looks_ahead

    def load(self, records: Sequence[TrialRecord]) -> None:
        """Computes the values of search trials that an earlier driver has begun, from their stored curves."""
        names = needed(self._study)
        begun = [record.id for record in records if record.phase == "search" and record.rounds_done]
        ended = [trial for trial in begun if trial not in self._table.curves] if self._used else []
        self.arrive(begun)
        for start in range(0, len(ended), CURVES_AT_ONCE):
            for trial, columns in self._client.curves(self._study_id, ended[start : start + CURVES_AT_ONCE]).items():
                self._reach(trial, {name: values for name, values in columns.items() if name in names})

    def arrive(self, trials: Iterable[str]) -> None:
        """Computes the values of these trials, as far as they have reported, if they are unfinished search trials."""
        for trial in trials if self._used else ():
            if trial in self._table.curves and self._table.trials[trial].phase == "search":
                self._reach(trial, self._table.curves[trial])

    def is_rung(self, trial: str, rounds_done: int) -> bool:
        """Whether this trial is compared with others after this round."""
        rungs = self._rungs_of(trial)
        return len(rungs) > 1 and rounds_done in rungs

    def result(self, trial: str) -> TrialResult:
        """The result of a trial that ends at a rung; see `rung_result`."""
        columns, at = self._table.curves.get(trial, {}), len(self._table.reached.get(trial, ()))
        return rung_result(self._study, self._table.trials[trial], columns, at)

    def job(self, launch: LaunchPack) -> dict[str, Any]:
        """The fields of a `PackJob` that say where its trials come from, and where it ends."""
        rung, rounds = launch.rung, self._rungs_of(launch.trials[0])
        if rung is None:
            return {}
        return {
            "since": rounds[rung - 1] if rung else 0,
            "until": rounds[rung] if rung < len(rounds) - 1 else None,
            "members": tuple(map(self._prefix, launch.trials)),
        }

    def ends_at_rung(self, launch: LaunchPack) -> bool:
        """Whether a pack ends at a rung before the last round."""
        return launch.rung is not None and launch.rung < len(self._rungs_of(launch.trials[0])) - 1

    def remove(self, trial: str) -> None:
        """Removes the checkpoints of a trial that has ended."""
        if trial in self._table.reached:
            try:
                checkpoints.remove(self._prefix(trial))
            except OSError as error:
                _LOG.warning("checkpoints %s could not be removed: %s", self._prefix(trial), error)

    def _reach(self, trial: str, columns: Columns) -> None:
        curve, rungs = self._table.trials[trial].curve(columns), self._rungs_of(trial)
        told = self._table.reached[trial] = reached(curve, rungs, self._study.objective)
        ahead = prospects(curve, rungs, self._study.objective) if self._looks_ahead else ()
        self._table.change([trial], arrivals=arrivals(told, ahead))

    def _rungs_of(self, trial: str) -> tuple[int, ...]:
        row = self._table.trials[trial]
        return row.rungs_or(self._rungs[row.label])

    def _prefix(self, trial: str) -> str:
        """Prefix of a trial's checkpoints at rungs."""
        return checkpoints.join(self._folder, f"trial.{hashlib.sha256(trial.encode()).hexdigest()[:16]}")
