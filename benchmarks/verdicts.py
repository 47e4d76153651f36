"""How often verdicts are wrong, possible and missed, in studies replayed from recorded tables.

    OMP_NUM_THREADS=1 python benchmarks/verdicts.py [TABLE.parquet ...] [--studies 1000] [--parts study]

Two labels stand for the same method: in each search they draw configurations from disjoint halves of a table, with
samplers of their own (with --parts study the halves are drawn once for a whole study). Any verdict about the methods is
then wrong, and with --three, for three labels, so is any better method that `ranges` name along the cost. A verdict
about the configurations found is wrong if the other label's are better by the mean over all seeds of the table. For the
power (--power), one label's curves are lifted until its mean area is 1.10 times the other's. Shares have exact
two-sided 95 % intervals.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

from driftline.results.comparison import compare, family_of
from driftline.results.curves import TrialCurve
from driftline.results.label_runs import SearchRuns
from driftline.results.recommendation import Span
from driftline.results.recorded_table import RecordedTable, read
from driftline.results.runs import runs_of
from driftline.results.scale import Scale, stored_axis
from driftline.study.budget import Budget
from service.replay.simulation import Replay
from service.replay.summary import share, summary

TABLES = Path(__file__).parent / "tables"
SEARCHES, CONFIRM, SEEDS = 6, 12, 6


def budget_of(table: RecordedTable, trials: int, searches: int, confirm: int, seeds: int) -> Budget:
    """A budget with the table's rounds."""
    rounds = table.study.budget.rounds
    return Budget(trials_per_method=trials, rounds=rounds, searches=searches, confirm=confirm, seeds=seeds)


def true_area(replay: Replay, name: str, trials: list[TrialCurve], result: dict[str, Any]) -> float:
    """Mean area over all seeds of the table of what the searches of a label alone have chosen."""
    objective, axis = replay.study.objective, stored_axis(result)
    scale = Scale(axis, result["scale"]["start"], result["scale"]["best"])
    span = Span(result["scale"]["first"], result["scale"]["last"])
    seeds = replay.grid(name).seeds
    areas = []
    own = [trial for trial in trials if trial.label == name]
    for search in range(replay.budget.searches):
        confirmed = {t.configuration for t in own if t.search == search and t.phase == "confirmation"}
        searched = [t for t in own if t.search == search and t.phase == "search" and t.configuration in confirmed]
        searched.sort(key=lambda trial: trial.configuration)
        runs, chosen_on = [], []
        for trial in searched:
            recorded = int(trial.trial.split(".")[1])
            curves = [replay.curves[name][recorded, seed] for seed in seeds]
            several = runs_of(trial.configuration, curves, objective.quality, objective.cost)
            single = runs_of(trial.configuration, [trial], objective.quality, objective.cost)
            if several is not None and single is not None:
                runs.append(several)
                chosen_on.append(single)
        found = SearchRuns(search, seeds, tuple(runs), tuple(chosen_on)).found(axis, span)
        areas.append(np.mean([each.area(scale, span) for each in found]))
    return float(np.mean(areas))


def same_method(table: RecordedTable, trials: int, studies: int, parts: Any) -> None:
    """Prints a line: how often two labels of the same method get a verdict."""
    label = table.study.labels[0]
    replay = Replay(table, [label, label], budget_of(table, trials, SEARCHES, CONFIRM, SEEDS), parts=parts)
    a, b = replay.names
    wrong = 0

    def seen(found: list[TrialCurve], result: dict[str, Any], compared: dict[str, Any]) -> None:
        nonlocal wrong
        verdict = compared[f"{a},{b}"]["claims"]["configurations"]["verdict"]
        if verdict is not None:
            other = b if verdict == a else a
            wrong += true_area(replay, verdict, found, result) < true_area(replay, other, found, result)

    started = time.process_time()
    found = summary(replay, range(studies), seen)
    minutes = (time.process_time() - started) / 60
    claims = found["pairs"][0]["claims"]
    methods, configurations = claims["methods"], claims["configurations"]
    either = share(methods["a"]["count"] + methods["b"]["count"], studies)
    named = share(configurations["a"]["count"] + configurations["b"]["count"], studies)
    cells = [
        table.study.name, label, trials, percent(methods["possible"]), percent(either),
        percent(configurations["possible"]), percent(named), percent(share(wrong, studies)),
        f"{studies / minutes:,.0f}",
    ]  # fmt: skip
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def same_three(table: RecordedTable, trials: int, confirm: int, studies: int) -> None:
    """Prints a line: how often some pair of three labels of the same method gets a verdict, or a range of costs."""
    label = table.study.labels[0]
    replay = Replay(table, [label] * 3, budget_of(table, trials, SEARCHES, confirm, SEEDS))
    decided = named = 0
    for study in range(studies):
        result = replay.document(replay.trials(study))
        family = family_of(result)
        pairs = [compare(result, a, b, family) for a, b in itertools.combinations(replay.names, 2)]
        decided += any(pair["verdict"] for pair in pairs)
        methods = [row for pair in pairs if pair["ranges_of"] == "methods" for row in pair["ranges"]]
        named += any(row["better"] for row in methods)
    cells = [table.study.name, label, trials, confirm, *(percent(share(count, studies)) for count in (decided, named))]
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def lift_for(table: RecordedTable, label: str, budget: Budget, ratio: float, studies: int) -> tuple[float, float]:
    """(factor, ratio): the factor by which one label is lifted, and the ratio of mean areas that results.

    The ratio is that of the two labels in the same studies, which have one scale. Without a lift it is 1 in the mean:
    the labels draw from one table by the same rule. The factor is found in a 50th of the studies, relative to the same
    studies without a lift, which takes most of the luck out.
    """

    def ratio_of_areas(factor: float, count: int) -> float:
        replay = Replay(table, [label, label], budget, lift={f"{label}-2": factor})
        totals = dict.fromkeys(replay.names, 0.0)
        for study in range(count):
            methods = replay.document(replay.trials(1_000_000 + study))["methods"]
            totals = {name: total + methods[name]["area"] for name, total in totals.items()}
        first, second = totals.values()
        return second / first

    few, factor = max(20, studies // 50), ratio
    base = ratio_of_areas(1.0, few)
    for _ in range(2):
        factor = 1 + (factor - 1) * (ratio - 1) / (ratio_of_areas(factor, few) / base - 1)
    return factor, ratio_of_areas(factor, studies)


def power(table: RecordedTable, budget: Budget, ratio: float, studies: int, calibration: int) -> None:
    """Prints a line: how often a method with a larger area gets the verdict."""
    label = table.study.labels[0]
    factor, reached = lift_for(table, label, budget, ratio, calibration)
    found = summary(Replay(table, [label, label], budget, lift={f"{label}-2": factor}), range(studies))
    claims = found["pairs"][0]["claims"]
    cells = [
        table.study.name, label, budget.trials_per_method, budget.searches, budget.confirm, budget.seeds,
        f"{factor:.3f}", f"{reached:.3f}", percent(claims["methods"]["b"]), percent(claims["methods"]["a"]),
        percent(claims["configurations"]["b"]), percent(claims["configurations"]["a"]),
    ]  # fmt: skip
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def percent(found: dict[str, Any]) -> str:
    """A share with its interval."""
    return f"{100 * found['share']:.1f} ({100 * found['low']:.1f} to {100 * found['high']:.1f})"


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*", default=sorted(TABLES.glob("*.parquet")))
    parser.add_argument("--studies", type=int, default=1000, help="studies for each line")
    parser.add_argument("--trials", type=int, nargs="*", default=[48, 96, 192])
    parser.add_argument("--parts", choices=["search", "study"], default="search")
    parser.add_argument("--ratio", type=float, default=1.10, help="of the mean areas, for the power")
    parser.add_argument("--calibration", type=int, default=10_000, help="studies that measure this ratio")
    parser.add_argument(
        "--power", type=int, nargs=4, action="append", metavar=("TRIALS", "SEARCHES", "CONFIRM", "SEEDS"), default=None
    )
    parser.add_argument("--three", type=int, nargs=2, metavar=("TRIALS", "CONFIRM"), help="of three labels")
    options = parser.parse_args()
    if options.three:
        searched, confirmed = options.three
        print(
            "| table | label | trials | confirm | a verdict of a pair, % | a range of a pair, % |\n" + "|---" * 6 + "|"
        )
        for path in options.tables:
            same_three(read(path), searched, confirmed, options.studies)
    if options.trials:
        print(
            "| table | label | trials | methods: possible, % | methods: a verdict, % | configurations: possible, % "
            "| configurations: a verdict, % | of these the worse one, % of studies | studies a CPU minute |"
        )
        print("|---" * 9 + "|")
    for path, trials in itertools.product(options.tables, options.trials):
        same_method(read(path), trials, options.studies, options.parts)
    if options.power:
        print(
            "\n| table | label | trials | searches | confirm | seeds | lift | ratio of mean areas "
            "| methods: the better, % | methods: the worse, % "
            "| configurations: the better, % | configurations: the worse, % |"
        )
        print("|---" * 12 + "|")
    for path, numbers in itertools.product(options.tables, options.power or []):
        table = read(path)
        power(table, budget_of(table, *numbers), options.ratio, options.studies, options.calibration)


if __name__ == "__main__":
    main()
