"""How often two labels of the same method are told apart when a study is extended until they are.

    OMP_NUM_THREADS=1 python -m benchmarks.looks [TABLE.parquet ...] [--studies 300] [--trials 48 96 144 192]

Studies are replayed from recorded tables. Each has its results after the first number of trials, and is extended to the
next ones as `driftline extend` does it: earlier configurations stay confirmed, the newly chosen ones are added. Printed
are shares of studies, with exact 95 % intervals: with a verdict about the methods at each look, and at this or an
earlier one, which is what somebody gets who stops at the first verdict.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.verdicts import SEEDS, TABLES, budget_of, percent
from driftline.results.comparison import compare
from driftline.results.confirmation import to_confirm
from driftline.results.curves import TrialCurve
from driftline.results.recorded_table import RecordedTable, read
from service.replay.simulation import Replay
from service.replay.summary import share

SEARCHES, CONFIRM = 6, 6


def extended(replay: Replay, study: int, trials: Sequence[int]) -> list[list[TrialCurve]]:
    """The trials that one study has at each look, where it is extended to these numbers of search trials."""
    objective, fresh, searches = replay.study.objective, replay.seeds(study), replay.budget.searches
    searched = [trial for trial in replay.trials(study) if trial.phase == "search"]
    whole = {
        (name, search): [trial for trial in searched if (trial.label, trial.search) == (name, search)]
        for name in replay.names
        for search in range(searches)
    }
    rows = {(name, curve.trial): row for name in replay.names for (row, _), curve in replay.curves[name].items()}
    confirmed: dict[tuple[str, int], list[int]] = {key: [] for key in whole}
    looks = []
    for count in trials:
        so_far = {key: own[: count // searches] for key, own in whole.items()}
        order = {key: to_confirm(own, objective.quality, objective.cost, len(own)) for key, own in so_far.items()}
        first = replay.budget.confirmed_per_search
        added = max(len(set(order[key][:first]) - set(confirmed[key])) for key in whole)
        for key, chosen in confirmed.items():
            chosen += [number for number in order[key] if number not in chosen][:added]
        curves = [trial for own in so_far.values() for trial in own]
        for key, chosen in confirmed.items():
            curves += [
                replace(
                    replay.curves[trial.label][rows[trial.label, trial.trial], seed],
                    label=trial.label,
                    phase="confirmation",
                    number=trial.configuration * replay.budget.seeds + index,
                    configuration=trial.configuration,
                    search=trial.search,
                )
                for trial in whole[key]
                if trial.configuration in chosen
                for index, seed in enumerate(fresh[trial.search][1:])
            ]
        looks.append(curves)
    return looks


def measure(table: RecordedTable, trials: Sequence[int], studies: int) -> None:
    """Prints a line for each look."""
    label = table.study.labels[0]
    replay = Replay(table, [label, label], budget_of(table, trials[-1], SEARCHES, CONFIRM, SEEDS))
    started = time.process_time()
    looks = [
        [
            compare(replay.document(curves), *replay.names)["verdict"] is not None
            for curves in extended(replay, study, trials)
        ]
        for study in range(studies)
    ]
    seconds = time.process_time() - started
    for index, count in enumerate(trials):
        here = share(sum(one[index] for one in looks), studies)
        any_yet = share(sum(any(one[: index + 1]) for one in looks), studies)
        cells = [table.study.name, label, index + 1, count, percent(here), percent(any_yet), f"{seconds:.0f}"]
        print("|", " | ".join(map(str, cells)), "|", flush=True)


def main() -> None:
    """Prints a line for each table and look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*", default=sorted(TABLES.glob("*.parquet")))
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--trials", type=int, nargs="+", default=[48, 96, 144, 192], help="after each look, increasing")
    options = parser.parse_args()
    print("| table | label | look | trials | a verdict at this look, % | at this or an earlier one, % | CPU-s |")
    print("|---" * 7 + "|")
    for path in options.tables:
        measure(read(path), options.trials, options.studies)


if __name__ == "__main__":
    main()
