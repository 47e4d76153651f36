"""What a search loses when its trials stop early at rungs, and what it saves; replayed from recorded tables.

    OMP_NUM_THREADS=1 python -m benchmarks.early_stopping [TABLE.parquet ...] [--studies 40] [--sampler tpe]
        [--rule extrapolation] [--rungs 100]
    OMP_NUM_THREADS=1 python -m benchmarks.early_stopping --thirds [TABLE.parquet ...]
    OMP_NUM_THREADS=1 python -m benchmarks.early_stopping --train

Three searches of one label are compared in every simulated study: all trials to the end; the same number of trials with
rungs; and fewer trials, all to the end, for about as many client gradients as the rungs take. All have the same seeds,
confirm 8 configurations on 6 seeds, and are judged by the area of the confirmed, cross-fitted frontier. The scale is
fixed for a table: 0 is the untrained model, 1 the best mean final loss in the table. Shares of client gradients are of
the search alone, relative to the search of all trials to the end. Differences have 95 % intervals, paired over studies.

With --thirds, the same search with rungs and to the end are compared where a user stands: by thirds of the cost on its
logarithm (qualities on the table's scale), and by the final loss, as a ratio. Areas hide what is lost at large costs.

With --train, three searches are trained with and without rungs, in this process without Ray: processor time of training
alone and in all, with rungs relative to without.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from driftline.results.curves import Array
from driftline.results.recorded_table import RecordedTable, read
from driftline.results.runs import runs_of
from driftline.study.budget import Budget
from driftline.study.spec import FixedScale, Study
from service.driver.ray.worker import Worker
from service.replay.simulation import Replay
from service.store.store import Store
from tests.driver.store_client import StoreClient
from tests.driver.test_search import Bench

TABLES = Path(__file__).parent / "tables"
CONFIRM, SEEDS = 8, 6
COSTS = 121  # points on the frontier


@dataclass(frozen=True)
class Searches:
    """What one kind of search finds and takes, by study.

    Attributes:
        areas: Of the confirmed frontier.
        gradients: Client gradients of the search.
        thirds: Mean scaled quality over the first, middle and last third of the logarithm of the cost, (studies, 3).
        final: Natural logarithm of the quality at the largest cost.
    """

    areas: Array
    gradients: Array
    thirds: Array
    final: Array


def scaled(table: RecordedTable) -> RecordedTable:
    """The table with a fixed scale: from the mean untrained quality to the best mean final quality."""
    objective = table.study.objective
    grid = table.grid(table.study.labels[0])
    runs = [
        each
        for number in grid.configurations
        if (several := [grid.curves[number, seed] for seed in grid.seeds])
        and (each := runs_of(number, several, objective.quality, objective.cost)) is not None
    ]
    start = float(np.mean([each.start.mean() for each in runs]))
    best = min(float(each.quality[:, -1].mean()) for each in runs)
    fixed = objective.model_copy(update={"scale": FixedScale(start=start, best=best)})
    return replace(table, study=table.study.model_copy(update={"objective": fixed}))


def searches(table: RecordedTable, trials: int, studies: Iterable[int], sampler: Any, rungs: Any = None) -> Searches:
    """Simulates studies of a table's label."""
    label = table.study.labels[0]
    rounds = table.study.budget.rounds
    budget = Budget(trials_per_method=trials, rounds=rounds, rungs=rungs, confirm=CONFIRM, seeds=SEEDS)
    replay = Replay(table, [label], budget, sampler)
    areas, gradients, parts, final = [], [], [], []
    for study in studies:
        found = replay.trials(study)
        document = replay.document(found)
        quality = along(document, label)
        areas.append(document["methods"][label]["area"])
        gradients.append(sum(each.columns["client_gradients"][-1] for each in found if each.phase == "search"))
        scale = document["scale"]
        merit = np.log(quality / scale["start"]) / np.log(scale["best"] / scale["start"])
        parts.append([part.mean() for part in np.array_split(merit, 3)])
        final.append(float(np.log(quality[-1])))
    return Searches(np.array(areas), np.array(gradients), np.array(parts), np.array(final))


def along(document: dict[str, Any], label: str) -> Array:
    """The loss on a label's frontier at costs that are evenly spread over the logarithm of all costs."""
    rows = document["methods"][label]["frontier"]
    costs = np.geomspace(document["scale"]["first"], document["scale"]["last"], COSTS)
    at = np.searchsorted([row["cost"] for row in rows], costs * (1 + 1e-12), side="right") - 1
    return np.array([rows[max(index, 0)]["quality"] for index in at])


def thirds(name: str, early: Searches, whole: Searches) -> str:
    """A line: what rungs change by thirds of the cost, and of the final loss."""
    from scipy.stats import t

    count = len(whole.areas)
    factor = float(t.ppf(0.975, count - 1)) / math.sqrt(count)
    parts = early.thirds - whole.thirds
    ratio = early.final - whole.final
    half = factor * ratio.std(ddof=1)
    cells = [
        name,
        f"{(early.gradients / whole.gradients).mean():.0%}",
        difference(early, whole),
        *(f"{part.mean():+.4f} ± {factor * part.std(ddof=1):.4f}" for part in parts.T),
        f"{math.exp(ratio.mean()):.2f} ({math.exp(ratio.mean() - half):.2f} to {math.exp(ratio.mean() + half):.2f})",
        f"{(ratio > math.log(1.1)).mean():.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def difference(one: Searches, other: Searches) -> str:
    """The mean difference of areas, paired over studies, with its 95 % interval."""
    from scipy.stats import t

    gaps = one.areas - other.areas
    half = float(t.ppf(0.975, len(gaps) - 1)) * gaps.std(ddof=1) / math.sqrt(len(gaps))
    return f"{gaps.mean():+.4f} ± {half:.4f}"


TASKS: dict[str, dict[str, Any]] = {
    "softmax, 8 x 8": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
    "softmax, 28 x 28": {"name": "mnist_by_writer", "writers": 100, "test_writers": 10},
    "MLP, 8 x 8": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}, "model": {"name": "mlp"}},
}


class Timed(Worker):
    """A worker that adds up the processor time of training."""

    seconds = 0.0

    def train_for(self, seconds: float) -> list[dict[str, Any]]:
        began = time.process_time()
        lines = super().train_for(seconds)
        Timed.seconds += time.process_time() - began
        return lines


def trained(task: dict[str, Any], rungs: Any) -> tuple[float, float, float]:
    """(client gradients, seconds of training, seconds in all) of a search of 32 trials of 100 rounds."""
    rates = {"client_lr": {"float": [1e-3, 1.0], "log": True}, "server_lr": {"float": [1e-3, 1.0], "log": True}}
    document = {
        "name": "early-stopping",
        "task": task,
        "methods": [{"name": "fedavg", "space": {**rates, "local_steps": {"choice": [1, 2, 4, 8, 16]}}}],
        "objective": {"quality": "test_loss"},
        "budget": {"trials_per_method": 32, "rounds": 100, "seeds": 0, "rungs": rungs},
        "resources": {"gpu": 0},
        "sampler": "quasi_random",
        "clients_per_round": 5,
        "batch_size": 20,
    }
    study, Timed.seconds = Study.from_json(document), 0.0
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
        client = StoreClient(Store(Path(folder) / "driftline.db"))
        study_id = client.submit(study)
        began = time.process_time()
        Bench(client, study_id, study, Path(folder) / "checkpoints", Timed).run()
        seconds = time.process_time() - began
        curves = client.store.curves.columns(study_id)
        client.store.close()
    return sum(curve["client_gradients"][-1] for curve in curves.values()), Timed.seconds, seconds


def train(rungs: Any) -> None:
    """Prints a line for each task."""
    print("| model | client gradients | training | in all, CPU-s |\n|---|---|---|---|")
    for name, task in TASKS.items():
        whole, early = trained(task, None), trained(task, rungs)
        gradients, training, _ = (part / full for part, full in zip(early, whole, strict=True))
        print(f"| {name} | {gradients:.0%} | {training:.0%} | {early[2]:.1f} instead of {whole[2]:.1f} |", flush=True)


def main() -> None:
    """Prints a line for each table, or for each task that is trained."""
    parser = argparse.ArgumentParser(description="What early stopping saves and loses, replayed from recorded tables.")
    parser.add_argument("tables", nargs="*", type=Path, default=sorted(TABLES.glob("*.parquet")))
    parser.add_argument("--studies", type=int, default=40)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--rungs", default="auto", help="auto, or rounds such as 11,33")
    parser.add_argument("--rule", default="halving", help="halving, extrapolation or forecast")
    parser.add_argument("--thirds", action="store_true", help="what changes by thirds of the cost")
    parser.add_argument("--train", action="store_true", help="train three searches with and without rungs")
    given = parser.parse_args()
    at = given.rungs if given.rungs == "auto" else [int(rung) for rung in given.rungs.split(",")]
    rungs = {"at": at, "rule": given.rule}
    if given.train:
        train(rungs)
        return
    if given.thirds:
        print("| table | gradients | area | first third | middle | last third | final loss, ratio | 10 % worse |")
        print("|---" * 8 + "|")
        for path in given.tables:
            table = scaled(read(path))
            whole, early = (
                searches(table, given.trials, range(given.studies), given.sampler, each) for each in (None, rungs)
            )
            print(thirds(path.stem, early, whole), flush=True)
        return
    print("| table | area, to the end | gradients with rungs, largest | rungs - to the end | fewer trials | gradients |"
          " rungs - fewer trials | CPU-s |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    studies = range(given.studies)
    for path in given.tables:
        began = time.process_time()
        table = scaled(read(path))
        whole = searches(table, given.trials, studies, given.sampler)
        early = searches(table, given.trials, studies, given.sampler, rungs)
        shares = early.gradients / whole.gradients
        count = max(CONFIRM, round(given.trials * float(shares.mean())))
        fewer = searches(table, count, studies, given.sampler)
        cells = [
            path.stem, f"{whole.areas.mean():.4f}", f"{shares.mean():.0%}, {shares.max():.0%}",
            difference(early, whole), count, f"{(fewer.gradients / whole.gradients).mean():.0%}",
            difference(early, fewer), f"{time.process_time() - began:.0f}",
        ]  # fmt: skip
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
