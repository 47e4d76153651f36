"""What a driver knows about its study: trials, curves so far, running packs. Rebuilt from the API at the start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from driftline.wire.curve_codec import Columns
from driftline.wire.records import Hyperparameters, TrialRecord
from service.driver.search.study_rows import Row, TrialRows


@dataclass
class RunningPack:
    """A running pack.

    Attributes:
        id: Its id.
        trials: Ids of its trials, in order.
        prefix: Prefix of its checkpoints.
        rung: Whether it ends at a rung before the last round, unless it is told to go on from there.
        stopped: Whether it was told to end at the rung that it has reached.
        pid: Process that trains it; None before its first report.
        host: Host of that process.
    """

    id: str
    trials: tuple[str, ...]
    prefix: str
    rung: bool = False
    stopped: bool = False
    pid: int | None = None
    host: str | None = None


@dataclass
class StudyTable:
    """The rows of a study, as in the API's last answers.

    Attributes:
        trials: Its trials.
        curves: Columns of unfinished trials that their results need, by trial id.
        reached: What samplers are told of search trials at each rung that they have reached, by trial id.
        packs: Running packs by id.
    """

    trials: TrialRows = field(default_factory=TrialRows)
    curves: dict[str, Columns] = field(default_factory=dict)
    reached: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    packs: dict[str, RunningPack] = field(default_factory=dict)

    def put(self, records: Iterable[TrialRecord]) -> None:
        """Stores records from an answer of the API."""
        for record in records:
            self.trials.put(Row.of(record, self.trials.get(record.id)))

    def change(self, trial_ids: Iterable[str], **changes: Any) -> None:
        """Applies the changes of a successful write."""
        for trial_id in trial_ids:
            self.trials.put(replace(self.trials[trial_id], **changes))

    def running(self) -> dict[str, tuple[str, ...]]:
        """Trial ids by running pack."""
        return {pack.id: pack.trials for pack in self.packs.values()}

    def configurations(self, label: str, numbers: Sequence[int]) -> list[Hyperparameters]:
        """Hyperparameters of the label's search trials with these numbers."""
        by_number = {row.number: row.hyperparameters for row in self.trials.of(label, "search")}
        return [by_number[number] for number in numbers]
