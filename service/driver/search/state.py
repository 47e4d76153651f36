"""What a driver knows about its study: trials, curves so far, running packs. Rebuilt from the API at the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftline.wire.records import Hyperparameters, TrialRecord
from service.driver.search.policy import Row

Columns = dict[str, list[Any]]


@dataclass
class Pack:
    """A running pack.

    Attributes:
        id: Its id.
        trials: Ids of its trials, in order.
        prefix: Prefix of its checkpoints.
        pid: Process that trains it; None before its first report.
        host: Host of that process.
    """

    id: str
    trials: tuple[str, ...]
    prefix: str
    pid: int | None = None
    host: str | None = None


@dataclass
class Table:
    """The rows of a study, as in the API's last answers.

    Attributes:
        objectives: Names of the values to maximise.
        trials: Trials by id.
        curves: Columns that unfinished trials have reported, by trial id.
        structures: Structure of each trial, by trial id.
        packs: Running packs by id.
    """

    objectives: tuple[str, ...]
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    curves: dict[str, Columns] = field(default_factory=dict)
    structures: dict[str, str] = field(default_factory=dict)
    packs: dict[str, Pack] = field(default_factory=dict)

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
                values=self._values(record),
            )
            for record in self.trials.values()
        ]

    def running(self) -> dict[str, tuple[str, ...]]:
        """Trial ids by running pack."""
        return {pack.id: pack.trials for pack in self.packs.values()}

    def configurations(self, label: str, numbers: Sequence[int]) -> list[Hyperparameters]:
        """Hyperparameters of the label's search trials with these numbers."""
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


def append(old: Columns | None, new: Columns) -> Columns:
    """Appends new columns to old ones; from the first new round on, new values replace old ones.

    A pack that resumes from a checkpoint reports some rounds again.

    Args:
        old: Columns so far, changed in place; None if there are none.
        new: Columns with increasing rounds.

    Examples:
        >>> append({"round": [0, 1, 2], "loss": [3.0, 2.0, 1.0]}, {"round": [2, 3], "loss": [1.0, 0.5], "norm": [7, 8]})
        {'round': [0, 1, 2, 3], 'loss': [3.0, 2.0, 1.0, 0.5], 'norm': [None, None, 7, 8]}
    """
    if not new.get("round"):
        return old or {}
    if not old:
        return {name: list(column) for name, column in new.items()}
    first = new["round"][0]
    kept = len(old["round"])
    while kept and old["round"][kept - 1] >= first:
        kept -= 1
    added = len(new["round"])
    for name in new:
        old.setdefault(name, [None] * kept)
    for name, column in old.items():
        column[kept:] = new.get(name, [None] * added)
    return old
