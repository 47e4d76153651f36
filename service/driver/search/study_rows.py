"""The trials of a study in the memory of its driver, reduced to what decisions need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from driftline.results.curves import TrialCurve
from driftline.wire.records import TRIAL_FINISHED, Hyperparameters, Phase, TrialRecord, TrialState
from service.driver.search.rules import Arrival


@dataclass(frozen=True, slots=True)
class Row:
    """A trial; see `TrialRecord` for the attributes that are not described here.

    Attributes:
        structure: Trials of equal structure may share a pack.
        rungs: Its own rungs, as rounds, where they are not those of its label.
        values: The values that its sampler is to be told; None once it has been told.
        arrivals: At each rung that it has reached, in order, what it has reached.
    """

    id: str
    label: str
    phase: Phase
    number: int
    seed: int
    structure: str = ""
    rungs: tuple[int, ...] = ()
    configuration: int = 0
    hyperparameters: Hyperparameters = field(default_factory=dict)
    state: TrialState = "WAITING"
    pack: str | None = None
    rounds_done: int = 0
    plan: Mapping[str, Any] | None = None
    checkpoint: str | None = None
    values: Mapping[str, float] | None = None
    error: str | None = None
    deaths: int = 0
    death_round: int | None = None
    arrivals: tuple[Arrival, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.state in TRIAL_FINISHED

    def rungs_or(self, of_label: tuple[int, ...]) -> tuple[int, ...]:
        """Its own rungs, otherwise the given ones of its label; as rounds, the last round included."""
        return self.rungs or of_label

    @classmethod
    def of(cls, record: TrialRecord, earlier: Row | None = None) -> Row:
        """The row of a stored trial, with what the driver has added to an earlier row of it."""
        return cls(
            id=record.id,
            label=record.label,
            phase=record.phase,
            number=record.number,
            seed=record.seed,
            structure=earlier.structure if earlier else "",
            rungs=earlier.rungs if earlier else (),
            configuration=record.configuration,
            hyperparameters=record.hyperparameters,
            state=record.state,
            pack=record.pack,
            rounds_done=record.rounds_done,
            plan=record.plan,
            checkpoint=record.checkpoint,
            values=record.values.model_dump() if record.values else None,
            error=record.error,
            deaths=record.deaths,
            death_round=record.death_round,
            arrivals=earlier.arrivals if earlier else (),
        )

    def curve(self, columns: Mapping[str, Sequence[Any]], search: int = 0) -> TrialCurve:
        """Its curve; see `TrialCurve.from_record` for the arguments."""
        return TrialCurve(
            trial=self.id,
            label=self.label,
            phase=self.phase,
            number=self.number,
            seed=self.seed,
            configuration=self.configuration,
            hyperparameters=dict(self.hyperparameters),
            state=self.state,
            columns={name: np.asarray(values, dtype=np.float64) for name, values in columns.items()},
            error=self.error or "",
            search=search,
        )


class TrialRows(Mapping[str, Row]):
    """All trials by id, in the order of their creation.

    Attributes:
        unfinished: Trials that have not ended, by id, so that most of a decision looks only at these.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.unfinished: dict[str, Row] = {}
        self._rows: dict[str, Row] = {}
        self._parts: dict[tuple[str, Phase], dict[str, Row]] = defaultdict(dict)
        for row in rows:
            self.put(row)

    def __getitem__(self, trial: str) -> Row:
        return self._rows[trial]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: Row) -> None:
        """Adds a trial, or replaces it. What only a resumed trial needs is dropped when the trial has ended."""
        if row.finished:
            row = replace(row, plan=None, checkpoint=None)
            self.unfinished.pop(row.id, None)
        else:
            self.unfinished[row.id] = row
        self._rows[row.id] = self._parts[row.label, row.phase][row.id] = row

    def of(self, label: str, phase: Phase) -> Collection[Row]:
        """A label's trials of one phase."""
        return self._parts[label, phase].values()
