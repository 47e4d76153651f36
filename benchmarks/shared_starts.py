"""How often the same method under two labels is told apart where each label starts from a study of its own.

    OMP_NUM_THREADS=1 python -m benchmarks.shared_starts [TABLE.parquet ...] [--studies 100] [--trials 48]

Replayed from recorded tables: the curves of one label stand for two labels, and an earlier study by random search gives
each of them starting points and a prior, as `--warm-start` takes them. All searches of a label share these, so they are
not independent, and `compare` refuses the claim about the methods. Printed are shares of studies, with exact 95 %
intervals, that would name a method otherwise, and that do so with what the labels were given in the result.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.verdicts import SEEDS, TABLES, budget_of, percent
from driftline.results.comparison import compare
from driftline.results.recorded_table import RecordedTable, read
from driftline.sdk.frontier import Frontier
from driftline.study.spec import Study
from service.replay.simulation import Replay
from service.replay.summary import share

LABELS = ("one", "other")
SEARCHES, CONFIRM = 6, 6
EARLIER = 100_000  # added to the number of a study for the seed of the earlier one
GIVEN = {"starting points": ("start",), "a prior": ("prior",), "both": ("start", "prior")}


def doubled(table: RecordedTable) -> RecordedTable:
    """The first label's trials under two labels, in a study whose sampler learns."""
    label = table.study.labels[0]
    document = table.study.to_json()
    (entry,) = [form for form in document["methods"] if form.get("label", form["name"]) == label]
    methods = [{**entry, "label": name} for name in LABELS]
    study = Study.from_json({**document, "methods": methods, "sampler": "tpe"})
    own = [trial for trial in table.trials if trial.label == label]
    return replace(table, study=study, trials=tuple(replace(trial, label=name) for name in LABELS for trial in own))


def given(study: Study, earlier: Frontier, keys: tuple[str, ...]) -> Study:
    """The study with these of the starting points and priors that an earlier result gives."""
    document = earlier.warm_started(study).to_json()
    for form in document["methods"]:
        for key in {"start", "prior"} - set(keys):
            form.pop(key, None)
    return Study.from_json(document)


def verdicts(table: RecordedTable, study: Study, trials: int, seed: int) -> tuple[bool, bool]:
    """Whether a study names a method if nobody knows what its labels were given, and if the result says so."""
    replay = Replay(
        replace(table, study=study), LABELS, budget_of(table, trials, SEARCHES, CONFIRM, SEEDS), study.sampler
    )
    result: dict[str, Any] = replay.document(replay.trials(seed))
    unknown = compare(result, *LABELS)["verdict"]
    for entry in study.methods:
        result["methods"][entry.label]["given"] = {"start": entry.start, "prior": entry.prior}
    return unknown is not None, compare(result, *LABELS)["verdict"] is not None


def measure(table: RecordedTable, trials: int, studies: int) -> None:
    """Prints a line for each kind of knowledge."""
    name, table = table.study.name, doubled(table)
    before = Replay(table, LABELS, budget_of(table, 48, 1, 8, SEEDS))
    specification = table.study.to_json()
    for kind, keys in GIVEN.items():
        started = time.process_time()
        found = []
        for seed in range(studies):
            document = before.document(before.trials(EARLIER + seed))
            study = given(table.study, Frontier({**document, "specification": specification}), keys)
            found.append(verdicts(table, study, trials, seed))
        shares = [percent(share(sum(column), studies)) for column in zip(*found, strict=True)]
        print(
            f"| {name} | {kind} | {trials} | {' | '.join(shares)} | {time.process_time() - started:.0f} |", flush=True
        )


def main() -> None:
    """Prints a line for each table and kind of knowledge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*", default=sorted(TABLES.glob("*.parquet")))
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--trials", type=int, default=48)
    options = parser.parse_args()
    print("| table | given to each label | trials | would name a method, % | names one, % | CPU-s |")
    print("|---" * 6 + "|")
    for path in options.tables:
        measure(read(path), options.trials, options.studies)


if __name__ == "__main__":
    main()
