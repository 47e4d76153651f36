"""What a driver knows about its study: trials, curves so far, running packs. Rebuilt from the API at the start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftline.wire.curve_codec import Columns
from driftline.wire.records import Hyperparameters, TrialRecord
from service.driver.search.actions import Row
from service.driver.search.forecast import Outlook
from service.driver.search.rungs import arrivals


@dataclass
class RunningPack:
    """A running pack.

    Attributes:
        id: Its id.
        trials: Ids of its trials, in order.
        prefix: Prefix of its checkpoints.
        rung: Whether it ends at a rung before the last round.
        pid: Process that trains it; None before its first report.
        host: Host of that process.
    """

    id: str
    trials: tuple[str, ...]
    prefix: str
    rung: bool = False
    pid: int | None = None
    host: str | None = None


@dataclass
class StudyTable:
    """The rows of a study, as in the API's last answers.

    Attributes:
        trials: Trials by id.
        curves: Columns of unfinished trials that their results need, by trial id.
        structures: Structure of each trial, by trial id.
        reached: What samplers are told of search trials at each rung that they have reached, by trial id.
        outlooks: What they may still reach, at each of these rungs, if the rule asks for it; by trial id.
        packs: Running packs by id.
    """

    trials: dict[str, TrialRecord] = field(default_factory=dict)
    curves: dict[str, Columns] = field(default_factory=dict)
    structures: dict[str, str] = field(default_factory=dict)
    reached: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    outlooks: dict[str, list[Outlook]] = field(default_factory=dict)
    packs: dict[str, RunningPack] = field(default_factory=dict)

    def put(self, records: Iterable[TrialRecord]) -> None:
        """Stores records from an answer of the API."""
        self.trials |= {record.id: record for record in records}

    def change(self, trial_ids: Iterable[str], **changes: Any) -> None:
        """Applies the changes of a successful write."""
        for trial_id in trial_ids:
            self.trials[trial_id] = self.trials[trial_id].model_copy(update=changes)

    def rows(self) -> list[Row]:
        """The trials as `decide` takes them."""
        return [
            Row(
                id=record.id,
                label=record.label,
                phase=record.phase,
                number=record.number,
                seed=record.seed,
                structure=self.structures.get(record.id, ""),
                configuration=record.configuration,
                state=record.state,
                pack=record.pack,
                rounds_done=record.rounds_done,
                arrivals=arrivals(self.reached.get(record.id, ()), self.outlooks.get(record.id, ())),
            )
            for record in self.trials.values()
        ]

    def running(self) -> dict[str, tuple[str, ...]]:
        """Trial ids by running pack."""
        return {pack.id: pack.trials for pack in self.packs.values()}

    def configurations(self, label: str, numbers: Sequence[int]) -> list[Hyperparameters]:
        """Hyperparameters of the label's search trials with these numbers."""
        by_number = {
            record.number: record.hyperparameters
            for record in self.trials.values()
            if record.label == label and record.phase == "search"
        }
        return [by_number[number] for number in numbers]
