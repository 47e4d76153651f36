"""How true promises are, in studies replayed from recorded tables.

    OMP_NUM_THREADS=1 python -m benchmarks.promises [TABLE.parquet ...] [--studies 1000] [--trials 48] [--searches 1]
        [--confirm 8] [--seeds 6]

Each label of a table is searched and confirmed as a study does it. What its result promises for a cost is compared with
what the recommended run gives on all seeds of the table that its search has not used. Printed are means over studies
and over the logarithm of the cost: the bias (fresh less promised, in percent of the loss, or of the start's distance
from 1 for other metrics) of the promise and of the run's own mean, the mean absolute error, the share of fresh seeds in
the band and below its worse end, and by how much the advice is worse than the best of the confirmed runs. Counted are
promises that are worse than one for a smaller cost, and runs with more than one promise.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.verdicts import TABLES, budget_of
from driftline.results.curves import Array, TrialCurve
from driftline.results.recommendation import Span, log_widths
from driftline.results.recorded_table import RecordedTable, read
from driftline.results.runs import Runs, runs_of
from driftline.results.scale import Axis, stored_axis
from service.replay.simulation import Replay

NAMES = ("bias", "bias_of_mean", "error", "covered", "worse", "regret", "outside")


def fresh_runs(replay: Replay, name: str, trials: list[TrialCurve]) -> dict[int, Runs]:
    """The confirmed configurations on the seeds that their searches have not used."""
    objective = replay.study.objective
    own = [trial for trial in trials if trial.label == name]
    used: dict[int, set[int]] = {}
    for trial in own:
        used.setdefault(trial.search, set()).add(trial.seed)
    found = {}
    for trial in own:
        if trial.phase == "confirmation" and trial.configuration not in found:
            recorded = int(trial.trial.split(".")[1])
            seeds = [seed for seed in replay.grid(name).seeds if seed not in used[trial.search]]
            curves = [replay.curves[name][recorded, seed] for seed in seeds]
            runs = runs_of(trial.configuration, curves, objective.quality, objective.cost)
            assert runs is not None
            found[trial.configuration] = runs
    return found


def judged(replay: Replay, name: str, trials: list[TrialCurve], result: dict[str, Any]) -> dict[str, float]:
    """What one study's promises for a label are worth; see `NAMES`."""
    axis = stored_axis(result)
    span = Span(result["scale"]["first"], result["scale"]["last"])
    method = result["methods"][name]
    fresh = fresh_runs(replay, name, trials)
    own = method["recommendations"]
    starts = np.array([row["cost"] for row in own])
    costs = np.unique(np.concatenate([starts, *(runs.cost.mean(axis=0) for runs in fresh.values())]))
    costs = costs[(costs >= starts[0]) & (costs <= span.last)]
    rows = [own[at] for at in np.searchsorted(starts, costs, side="right") - 1]
    widths = log_widths(costs, Span(max(span.first, costs[0]), span.last))
    measured = np.stack([_at(fresh[row["configuration"]], row["round"]) for row in rows])  # (n, seeds)
    promised, low, high = (np.array([row[key] for row in rows]) for key in ("quality", "low", "high"))
    merit, expected = axis.merit(measured), axis.merit(promised)
    mean = merit.mean(axis=1)
    optimism = np.log10(method["optimism"]) if axis.logarithmic else method["optimism"]
    off = expected - mean  # positive if a fresh seed is worse than promised
    inside = (measured >= low[:, None]) & (measured <= high[:, None])
    worst = np.minimum(axis.merit(low), axis.merit(high))
    best = np.maximum.reduce([_best_within(runs, costs, axis) for runs in fresh.values()])
    values = {
        "bias": off,
        "bias_of_mean": off + optimism,
        "error": np.abs(off),
        "covered": inside.mean(axis=1),
        "worse": (merit < worst[:, None]).mean(axis=1),
        "regret": best - mean,
        "outside": ((promised < low) | (promised > high)).astype(float),
    }
    means = {key: float(np.dot(value, widths) / widths.sum()) for key, value in values.items()}
    runs = {(row["configuration"], row["round"]) for row in rows}
    numbers = {(row["configuration"], row["round"], row["quality"]) for row in rows}
    return means | {"rises": float((np.diff(expected) < -1e-9).sum()), "several": float(len(numbers) - len(runs))}


def _at(runs: Runs, number: int) -> Array:
    column = int(np.searchsorted(runs.rounds, number, side="right")) - 1
    return runs.quality[:, column]


def _best_within(runs: Runs, costs: Array, axis: Axis) -> Array:
    """The best mean merit on fresh seeds of the rounds that each cost pays for."""
    merit = np.maximum.accumulate(axis.merit(runs.quality).mean(axis=0))
    paid = np.searchsorted(runs.cost.mean(axis=0), costs, side="right")
    return np.where(paid > 0, merit[np.maximum(paid - 1, 0)], -np.inf)


def measure(table: RecordedTable, options: argparse.Namespace) -> None:
    """Prints a line."""
    label = table.study.labels[0]
    budget = budget_of(table, options.trials, options.searches, options.confirm, options.seeds)
    replay = Replay(table, [label], budget)
    (name,) = replay.names
    started = time.process_time()
    found = []
    for study in range(options.studies):
        trials = replay.trials(study)
        found.append(judged(replay, name, trials, replay.document(trials)))
    minutes = (time.process_time() - started) / 60
    mean = {key: np.array([one[key] for one in found]).mean() for key in found[0]}
    error = {key: np.array([one[key] for one in found]).std(ddof=1) / np.sqrt(len(found)) for key in found[0]}
    loss = {key: f"{100 * (10 ** mean[key] - 1):+.2f}" for key in ("bias", "bias_of_mean", "error", "regret")}
    cells = [
        table.study.name, label, options.searches, options.trials, options.confirm, options.seeds,
        f"{loss['bias']} ± {100 * np.log(10) * 1.96 * error['bias']:.2f}", loss["bias_of_mean"], loss["error"],
        f"{100 * mean['covered']:.1f}", f"{100 * mean['worse']:.1f}", f"{100 * mean['outside']:.1f}", loss["regret"],
        f"{sum(one['rises'] for one in found):.0f}", f"{sum(one['several'] for one in found):.0f}",
        f"{options.studies / minutes:,.0f}",
    ]  # fmt: skip
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def main() -> None:
    """Prints a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*", default=sorted(TABLES.glob("*.parquet")))
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--searches", type=int, default=1)
    parser.add_argument("--confirm", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    print(
        "| table | label | searches | trials | confirmed | seeds | bias, % | of the run's mean, % | mean error, % "
        "| fresh seeds in the band, % | worse than it, % | promise outside it, % | worse than the best confirmed, % "
        "| rises | runs with several promises | studies a CPU minute |"
    )
    print("|---" * 16 + "|")
    for path in options.tables:
        measure(read(path), options)


if __name__ == "__main__":
    main()
