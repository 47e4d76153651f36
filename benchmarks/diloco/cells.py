"""The studies of docs/diloco.md: one entry of study.yaml each, of some width, workers, batch, steps and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driftline.study.spec import Study
from driftline.study.trial_document import structure
from search_spaces.spaces import grid_size
from service.samplers.build import build

STUDY = Path(__file__).with_name("study.yaml")
BATCH, TOKENS, STEPS = 32, 307_200, 10
"""Windows of all workers in a step, tokens of a run and local steps, where a cell varies another one of them."""
PARAMETERS = {36: 34_000, 72: 130_000, 144: 508_000}
"""Width of the model -> its parameters, rounded."""
INNER = {36: [0.007, 0.014], 72: [0.005, 0.01], 144: [0.0035, 0.007]}
"""Width of the model -> rates of the workers: wider models take smaller ones."""
FEW_RATES = [0.1, 0.2, 0.4]
"""Outer rates of the parts that vary the batch: all five would take too long."""


@dataclass(frozen=True)
class Cell:
    """One study with one entry; every configuration of its grid is run on every seed.

    Attributes:
        part: Its part of the plan, the first word of its name.
        label: Label of its entry.
        width: Width of the model.
        workers: Clients of the task, all of which take part in every round.
        batch: Windows of all workers in a step.
        tokens: Of a run.
        study: The study; a tiny one trains a smaller model on fewer tokens.
    """

    part: str
    label: str
    width: int
    workers: int
    batch: int
    tokens: int
    study: Study

    @property
    def name(self) -> str:
        """Its name, which is also that of its files."""
        return f"{self.part}-{self.width}-m{self.workers}-b{self.batch}-{self.label}"

    @property
    def seeds(self) -> Sequence[int]:
        """The seed of the search, which chooses, and the fresh ones, which judge."""
        return range(self.study.seed, self.study.seed + 1 + self.study.budget.seeds)

    def configurations(self) -> list[dict[str, Any]]:
        """All of its grid."""
        space = self.study.entry(self.label).parameters()
        sampler = build("grid", space, (), self.study.seed)
        return [dict(sampler.ask(number)) for number in range(grid_size(space))]

    def packs(self, most: int) -> Iterator[list[int]]:
        """Numbers of configurations that are trained together, at most `most` of equal structure."""
        alike: dict[str, list[int]] = {}
        for number, configuration in enumerate(self.configurations()):
            alike.setdefault(structure(self.study, self.label, configuration), []).append(number)
        for numbers in alike.values():
            for first in range(0, len(numbers), most):
                yield numbers[first : first + most]


def cells(smoke: str | None = None) -> list[Cell]:
    """All cells, in the order in which they are run.

    Args:
        smoke: A text file: tiny models with few rates, on two seeds, for a round of the most local steps.
    """
    plan = [_cell("sizes", label, width, workers) for width in PARAMETERS for label, workers in _sizes(width)]
    steps: Any = {"local_steps": {"choice": [1, 3, 30]}}
    plan += [_cell("steps", "diloco", 36, workers, space=steps) for workers in (1, 4)]
    few: Any = {"delta_lr": {"choice": FEW_RATES}}
    for batch in (16, 64, 128):
        plan += [_cell("batches", "diloco", 36, workers, batch=batch, space=few) for workers in (1, 4, 8)]
        plan += [_cell("batches", "averaging", 36, 1, batch=batch)]
    plan += [_cell("length", "diloco", 36, 4, tokens=4 * TOKENS)]
    return plan if smoke is None else [_tiny(cell, smoke) for cell in plan]


def _sizes(width: int) -> list[tuple[str, int]]:
    """Labels and workers with each width; the wider ones have only what a statement needs."""
    if width > min(PARAMETERS):
        return [("averaging", 1), *(("diloco", each) for each in (1, 4, 8))]
    return [("averaging", 1), *(("diloco", each) for each in (1, 2, 4, 8)), ("averaging", 4), ("schedule_free", 4)]


def _cell(
    part: str,
    label: str,
    width: int,
    workers: int,
    *,
    batch: int = BATCH,
    tokens: int = TOKENS,
    space: Mapping[str, Any] | None = None,
) -> Cell:
    document = Study.from_yaml(STUDY).to_json()
    task = document["task"]
    (entry,) = (entry for entry in document["methods"] if entry["label"] == label)
    entry["space"] |= {"client_lr": {"choice": INNER[width]}, **(space or {})}
    document |= {
        "name": f"{part}-{label}",
        "task": {**task, "clients": workers, "model": {**task["model"], "width": width}},
        "batch_size": batch // workers,
        "methods": [entry],
        "budget": {**document["budget"], "tokens": tokens},
    }
    return Cell(part, label, width, workers, batch, tokens, _whole_grid(document))


def _whole_grid(document: dict[str, Any]) -> Study:
    """The study with a budget for all of its grid."""
    size = grid_size(Study.from_json(document).methods[0].parameters())
    return Study.from_json({**document, "budget": {**document["budget"], "trials_per_method": size, "confirm": size}})


def _tiny(cell: Cell, text: str) -> Cell:
    document = cell.study.to_json()
    task, (entry,) = document["task"], document["methods"]
    entry["space"]["client_lr"] = {"choice": [0.005, 0.02]}
    if cell.part != "batches" and cell.label == "diloco":
        entry["space"]["delta_lr"] = {"choice": [0.4, 0.7, 1.0]}
    steps = max(configuration["local_steps"] for configuration in cell.configurations())
    model = {**task["model"], "width": cell.width // 9}
    del task["sha256"]
    task |= {"path": text, "context": 4, "test_windows": 64, "model": model}
    document["budget"] |= {"tokens": steps * cell.batch * 4, "seeds": 2}
    return replace(cell, study=_whole_grid(document))
