"""What priors change in a search: from an earlier study, misleading, and from theory.

    OMP_NUM_THREADS=1 python -m benchmarks.priors [--studies 20] [--trials 64] [--sampler tpe] [--method fedavg]

Replayed from recorded tables: searches of one label without a prior, and with the starting points and the prior that
`--warm-start` takes from an earlier study: of the same task with other seeds ("same task"), of the other task ("other
task": another model size, other clients), the same without multiplying its rates by the ratio of the tasks' measured
curvatures ("other task, rates as they are"), and a misleading one, whose recommended and confirmed configurations are
the worst of the table that did not diverge ("misleading"). "Theory" tries the first points of `space: theory`; its
ranges cannot be replayed. All searches confirm 8 configurations on 6 seeds; the area of the confirmed, cross-fitted
frontier is on the table's fixed scale (`benchmarks.early_stopping.scaled`). Ratios are of mean areas, with a 95 %
interval of the mean difference, paired over studies, relative to the area without a prior; percentages are client
gradients of the search, relative to those without a prior.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.early_stopping import CONFIRM, SEEDS, TABLES, scaled
from driftline.results.curves import Array
from driftline.results.document import Reading, frontier_document
from driftline.results.recorded_table import RecordedTable, read
from driftline.sdk.frontier import Frontier
from driftline.study.budget import Budget
from driftline.study.spec import Study
from driftline.study.theory_spaces import derived
from service.replay.simulation import Replay

METHODS = ("fedavg", "fedprox")


def earlier(table: RecordedTable, seed: int, sampler: Any) -> Frontier:
    """The result of a replayed study of a table."""
    study = table.study
    budget = Budget(trials_per_method=64, rounds=study.budget.rounds, confirm=CONFIRM, seeds=SEEDS)
    replay = Replay(table, list(study.labels), budget, sampler)
    document = replay.document(replay.trials(seed))
    return Frontier({**document, "specification": study.to_json()})


def worst(table: RecordedTable) -> Frontier:
    """A result that recommends and confirms the worst configurations that did not diverge."""
    label = table.study.labels[0]
    grid, quality = table.grid(label), table.study.objective.quality
    ended = [
        number
        for number in grid.configurations
        if all(grid.curves[number, seed].state == "COMPLETE" for seed in grid.seeds)
    ]
    last = {
        number: float(np.mean([grid.curves[number, seed].columns[quality][-1] for seed in grid.seeds]))
        for number in ended
    }
    chosen = sorted(ended, key=lambda number: -last[number])[:CONFIRM]
    trials = [
        replace(grid.curves[number, seed], phase=phase, number=index * SEEDS + place)
        for index, number in enumerate(chosen)
        for phase, seeds in (("search", grid.seeds[:1]), ("confirmation", grid.seeds[1 : 1 + SEEDS]))
        for place, seed in enumerate(seeds)
    ]
    study = table.study
    reading = Reading(quality, study.objective.cost)
    document = frontier_document(study.name, trials, reading, study.budget.rounds, study.labels)
    return Frontier({**document, "specification": study.to_json()})


def from_theory(study: Study) -> Study:
    """The study with the first points of theory, moved into its space."""
    document = study.to_json()
    entries = [{"name": entry["name"], "space": "theory"} for entry in document["methods"]]
    theory = derived(Study.from_json({**document, "methods": entries}))
    for form, entry, own in zip(document["methods"], theory.methods, study.methods, strict=True):
        space = own.parameters()
        form["start"] = [
            {name: value for name, value in point.items() if space[name].contains(value)} for point in entry.start
        ]
    return Study.from_json(document)


def as_of(study: Study, earlier: Frontier) -> Frontier:
    """The result as if it were of the study's task, so that its rates are taken as they are."""
    return Frontier({**earlier.data, "specification": {**earlier.data["specification"], "task": study.task}})


@dataclass(frozen=True)
class Searches:
    """Searches with the same starting points and prior: area and client gradients of each, (studies,)."""

    areas: Array
    gradients: Array


def searches(table: RecordedTable, study: Study, trials: int, studies: Sequence[int], sampler: Any) -> Searches:
    """Searches with the starting points and priors of a study."""
    budget = Budget(trials_per_method=trials, rounds=study.budget.rounds, confirm=CONFIRM, seeds=SEEDS)
    label = study.labels[0]
    replay = Replay(replace(table, study=study), [label], budget, sampler)
    found = [replay.trials(seed) for seed in studies]
    return Searches(
        np.array([replay.document(curves)["methods"][label]["area"] for curves in found]),
        np.array([
            sum(curve.columns["client_gradients"][-1] for curve in curves if curve.phase == "search")
            for curves in found
        ]),
    )  # fmt: skip


def ratio(one: Searches, without: Searches) -> str:
    """The ratio of the mean areas, with the 95 % interval of the paired differences, and that of the gradients."""
    from scipy.stats import t

    gaps = (one.areas - without.areas) / without.areas.mean()
    half = float(t.ppf(0.975, len(gaps) - 1)) * gaps.std(ddof=1) / math.sqrt(len(gaps))
    return f"{1 + gaps.mean():.3f} ± {half:.3f}, {one.gradients.mean() / without.gradients.mean():.0%}"


def replayed(given: argparse.Namespace) -> None:
    """Prints a line for each table and kind of prior."""
    names = [f"{task}-{method}" for method in METHODS for task in ("digits", "mnist-by-writer")]
    tables = {
        name: scaled(read(TABLES / f"{name}.parquet")) for name in names if not given.method or given.method in name
    }
    budgets = [given.trials, given.trials // 3, given.trials // 4]
    print(f"| table | prior | {' | '.join(f'{count} trials' for count in budgets)} |")
    print(f"|---|---|{'---|' * len(budgets)}", flush=True)
    studies = range(given.studies)
    for name, table in tables.items():
        task, method = name.rsplit("-", 1)
        other = tables[f"{'mnist-by-writer' if task == 'digits' else 'digits'}-{method}"]
        plain = table.study.model_copy(update={"sampler": given.sampler})  # one that learns takes a prior
        foreign = earlier(other, 1000, given.sampler)
        kinds: dict[str, Study] = {
            "none": plain,
            "same task": earlier(table, 1000, given.sampler).warm_started(plain),
            "other task": foreign.warm_started(plain),
            "other task, rates as they are": as_of(plain, foreign).warm_started(plain),
            "misleading": worst(table).warm_started(plain),
            "theory's points": from_theory(plain),
        }
        without: Searches | None = None
        for kind, study in kinds.items():
            measured = [searches(table, study, count, studies, given.sampler) for count in budgets]
            without = without or measured[0]
            cells = [ratio(each, without) for each in measured]
            if kind == "none":
                cells[0] = f"area {without.areas.mean():.4f}"
            print(f"| {name} | {kind} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Replays searches."""
    parser = argparse.ArgumentParser(description="What priors change in a search.")
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--method", choices=METHODS, help="replay the tables of one method alone")
    replayed(parser.parse_args())


if __name__ == "__main__":
    main()
