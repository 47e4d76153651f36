"""What a driver knows of its study: trials, their curves so far, and which packs run. Rebuilt from the API at start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftline.wire.curve_codec import Columns
from driftline.wire.records import Hyperparameters, TrialRecord
from service.driver.search.policy import Row


@dataclass
class Pack:
    """A pack that runs.

    Attributes:
        id: Its id.
        trials: Ids of its members, in order.
        prefix: Prefix of its checkpoints.
        pid: Process that trains it, once it has reported.
        host: Where.
    """

    id: str
    trials: tuple[str, ...]
    prefix: str
    pid: int | None = None
    host: str | None = None


@dataclass
class Table:
    """The rows of a study, kept as the API last answered them.

    Attributes:
        objectives: Names of the values that count.
        trials: By id.
        curves: What unfinished trials have reported of what a result needs, by id.
        structures: Structure of each trial, by id.
        packs: Those that run, by id.
    """

    objectives: tuple[str, ...]
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    curves: dict[str, Columns] = field(default_factory=dict)
    structures: dict[str, str] = field(default_factory=dict)
    packs: dict[str, Pack] = field(default_factory=dict)

    def put(self, records: Iterable[TrialRecord]) -> None:
        """Takes over what the API answered."""
        self.trials |= {record.id: record for record in records}

    def change(self, trial_ids: Iterable[str], **changes: Any) -> None:
        """Notes what a successful write has changed."""
        for trial_id in trial_ids:
            self.trials[trial_id] = self.trials[trial_id].model_copy(update=changes)

    def rows(self) -> list[Row]:
        """What `decide` sees."""
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
                values=self._values(record),
            )
            for record in self.trials.values()
        ]

    def running(self) -> dict[str, tuple[str, ...]]:
        """Trials by running pack."""
        return {pack.id: pack.trials for pack in self.packs.values()}

    def configurations(self, label: str, numbers: Sequence[int]) -> list[Hyperparameters]:
        """Hyperparameters of search trials, by number."""
        found = {
            record.number: record.hyperparameters
            for record in self.trials.values()
            if record.label == label and record.phase == "search"
        }
        return [found[number] for number in numbers]

    def _values(self, record: TrialRecord) -> tuple[float, ...] | None:
        if record.values is None:
            return None
        values: Mapping[str, float] = record.values.model_dump()
        return tuple(values[name] for name in self.objectives)
