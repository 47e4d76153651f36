"""What the benchmark of searches searches: recorded tables, and small studies that are really trained."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.early_stopping import CONFIRM, SEEDS, TABLES, scaled
from driftline.results.confirmation import to_confirm
from driftline.results.curves import TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.recorded_table import RecordedTable, read
from driftline.study.budget import Budget
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.ray.worker import columns
from service.replay.nearest import NearestRows
from service.replay.simulation import Replay
from service.store.store import Store
from tests.driver.store_client import StoreClient
from tests.driver.test_search import Bench
from trainers import Pack, parse

Tried = list[tuple[int, TrialCurve]]
"""The trials of a search as far as they were trained, with their rows in a table, or their numbers."""


class Searched(Protocol):
    """What is searched: a recorded table, or a task on which trials are really trained.

    Attributes:
        study: Its only entry is searched.
        trials: Of a search.
        rungs: The rounds at which trials are compared, the last round included.
    """

    study: Study
    trials: int
    rungs: tuple[int, ...]

    def search(self, seed: int) -> Tried:
        """Driftline's search."""
        ...

    def trainer(self, seed: int) -> Callable[[Mapping[str, Any]], tuple[int, TrialCurve]]:
        """Trains the proposals of another search to their end, one after the other."""
        ...

    def area(self, seed: int, tried: Tried) -> float:
        """Area of the confirmed frontier of a search."""
        ...


class Replayed:
    """A label of a recorded table."""

    def __init__(self, table: RecordedTable, rungs: Any, trials: int) -> None:
        self.trials, rounds, (self._label, *_) = trials, table.study.budget.rounds, table.study.labels
        budget = Budget(trials_per_method=trials, rounds=rounds, rungs=rungs, confirm=CONFIRM, seeds=SEEDS)
        self._replay = Replay(table, [self._label], budget, "tpe")
        self.study, self.rungs = self._replay.study, self._replay.rungs

    def search(self, seed: int) -> Tried:
        return self._replay.tried(self._label, seed)

    def trainer(self, seed: int) -> Callable[[Mapping[str, Any]], tuple[int, TrialCurve]]:
        grid, data_seed = self._replay.grid(self._label), self._replay.seeds(seed)[0][0]
        curves = [grid.curves[number, data_seed] for number in grid.configurations]
        nearest = NearestRows(self.study.entry(self._label).parameters(), [curve.hyperparameters for curve in curves])
        untried = {*range(len(curves))}

        def train(proposal: Mapping[str, Any]) -> tuple[int, TrialCurve]:
            row = nearest.nearest(proposal, sorted(untried))
            untried.remove(row)
            return row, curves[row]

        return train

    def area(self, seed: int, tried: Tried) -> float:
        _, *fresh = self._replay.seeds(seed)[0]
        document = self._replay.document(self._replay.confirmed(self._label, tried, fresh))
        return float(document["methods"][self._label]["area"])


REAL: dict[str, dict[str, Any]] = {
    "digits": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
    "mnist-by-writer": {"name": "mnist_by_writer", "writers": 100, "test_writers": 10},
}


class Trained:
    """A task on which small studies are really trained, on the scale of the task's table."""

    seeds, confirm = 3, 4

    def __init__(self, task: str, rungs: Any, trials: int, rounds: int) -> None:
        scale = scaled(read(TABLES / f"{task}-fedavg.parquet")).study.objective.scale
        assert scale is not None
        rates = {"client_lr": {"float": [1e-3, 1.0], "log": True}, "server_lr": {"float": [1e-3, 10.0], "log": True}}
        self.study = Study.from_json({
            "name": "search",
            "task": REAL[task],
            "methods": [{"name": "fedavg", "space": {**rates, "local_steps": {"choice": [1, 2, 4, 8, 16]}}}],
            "objective": {"quality": "test_loss", "scale": {"start": scale.start, "best": scale.best}},
            "budget": {"trials_per_method": trials, "rounds": rounds, "seeds": 0, "rungs": rungs},
            "resources": {"gpu": 0},
            "sampler": {"name": "tpe", "startup": 8},
            "clients_per_round": 5,
            "batch_size": 10,
        })  # fmt: skip
        self.trials, self.rungs = trials, self.study.budget.rung_rounds
        self._confirmed: dict[str, TrialCurve] = {}

    def search(self, seed: int) -> Tried:
        study = self.study.model_copy(update={"seed": 1000 * seed})
        with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
            client = StoreClient(Store(Path(folder) / "driftline.db"))
            study_id = client.submit(study)
            Bench(client, study_id, study, Path(folder) / "checkpoints").run()
            records, found = client.store.trials.find(study_id), client.store.curves.columns(study_id)
            client.store.close()
        return [(record.number, TrialCurve.from_record(record, found[record.id])) for record in records]

    def trainer(self, seed: int) -> Callable[[Mapping[str, Any]], tuple[int, TrialCurve]]:
        begun: list[TrialCurve] = []

        def train(proposal: Mapping[str, Any]) -> tuple[int, TrialCurve]:
            begun.append(self._curve(proposal, 1000 * seed, len(begun)))
            return len(begun) - 1, begun[-1]

        return train

    def area(self, seed: int, tried: Tried) -> float:
        objective, searched = self.study.objective, [curve for _, curve in tried]
        repeats = []
        for configuration in to_confirm(searched, objective.quality, objective.cost, self.confirm):
            values = searched[configuration].hyperparameters
            for fresh in range(1000 * seed + 1, 1000 * seed + 1 + self.seeds):
                key = json.dumps([fresh, values], sort_keys=True)
                if key not in self._confirmed:
                    self._confirmed[key] = self._curve(values, fresh)
                own = {"phase": "confirmation", "number": len(repeats), "configuration": configuration}
                repeats.append(replace(self._confirmed[key], **own))
        reading, (label,) = Reading(objective.quality, objective.cost), self.study.labels
        document = frontier_document(
            self.study.name, [*searched, *repeats], reading, self.rungs[-1], scale=objective.scale, rungs=self.rungs
        )
        return float(document["methods"][label]["area"])

    def _curve(self, values: Mapping[str, Any], seed: int, number: int = 0) -> TrialCurve:
        """A trial, trained to its end."""
        (label,) = self.study.labels
        pack = Pack.from_spec(parse(trial_document(self.study, label, [values], seed)))
        (found,) = columns(pack.advance(), 1)
        state = "DIVERGED" if any(found["diverged"]) else "COMPLETE"
        arrays = {name: np.asarray(column, dtype=float) for name, column in found.items()}
        return TrialCurve(f"{seed}-{number}", label, "search", number, seed, number, values, state, arrays)
