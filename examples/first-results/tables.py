"""Prints the tables of docs/first-results.md from output folders of `driftline run`.

python examples/first-results/tables.py out/softmax out/mlp ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from driftline import Client, Study

ROUNDS = (5, 10, 20, 50, 100, 150)


def main(folders: Sequence[str]) -> None:
    """Prints all tables of each folder."""
    for folder in folders:
        show(Path(folder))


def show(folder: Path) -> None:
    """Best configurations with their accuracy, frontiers, every configuration of a grid, verdicts."""
    study = Study.from_yaml(folder / "study.yaml")
    with Client() as client:
        job = client.submit(study, out=folder).wait()  # it is finished: nothing runs
        result = job.frontier()
        confirmed = job.trials(phase="confirmation")
        curves = job.curves(*(trial.id for trial in confirmed))
    methods = result.data["methods"]
    last = study.budget.rounds * (1 - result.data["definitions"]["parameters"]["window"])
    print(f"\n## {study.name}\n")
    ends = {
        label: {
            number: Ends(
                [trial for trial in confirmed if (trial.label, trial.configuration) == (label, number)], curves, last
            )
            for number in sorted({trial.configuration for trial in confirmed if trial.label == label})
        }
        for label in methods
    }
    rows = []
    for label, method in methods.items():
        best = min(ends[label].values(), key=lambda end: median(end.losses))
        area = method["area_band"]
        rows.append(
            [
                f"`{label}`",
                f"{method['area']:.3f} ({area['low']:.3f} to {area['high']:.3f})",
                band(best.losses, ".3f"),
                band(best.accuracies, ".1f"),
                ", ".join(f"{name} {short(value)}" for name, value in best.hyperparameters.items()),
                str(method["diverged"]),
            ]
        )
    table(["label", "area", "lowest test loss", "its accuracy, %", "its configuration", "diverged"], rows)
    shown = [rounds for rounds in ROUNDS if rounds <= study.budget.rounds]
    table(
        ["test loss of the recommendation for", *(f"{rounds} rounds" for rounds in shown)],
        (
            [f"`{label}`", *(within(method["frontier"], rounds) for rounds in shown)]
            for label, method in methods.items()
        ),
    )
    if study.sampler == "grid":
        cells = {
            (label, end.hyperparameters["client_lr"], end.hyperparameters["server_lr"]): end.cell(method, number)
            for label, method in methods.items()
            for number, end in ends[label].items()
        }
        rates = sorted({rate for _, _, rate in cells})
        rows_of = sorted({key[:2] for key in cells}, key=lambda key: (key[1], list(methods).index(key[0])))
        table(
            ["test loss in the end @ settled", "client_lr", *(f"server_lr {rate:g}" for rate in rates)],
            ([f"`{label}`", f"{own:g}", *(cells[label, own, rate] for rate in rates)] for label, own in rows_of),
        )
    for first, second in combinations(methods, 2):
        print(f"- {first}, {second}: {result.compare(first, second)['why']}")


class Ends:
    """How a configuration ends on each of its fresh seeds; infinite where it diverged."""

    def __init__(self, trials: Sequence[Any], curves: dict[str, Any], last: int) -> None:
        self.hyperparameters = trials[0].hyperparameters
        whole = [trial.state == "COMPLETE" for trial in trials]
        columns = [curves[trial.id] for trial in trials]
        self.losses = [tail(c, "test_loss", last) if ok else inf for c, ok in zip(columns, whole, strict=True)]
        self.accuracies = [100 * tail(c, "test_accuracy", last) for c, ok in zip(columns, whole, strict=True) if ok]

    def cell(self, method: dict[str, Any], number: int) -> str:
        """Medians over the seeds, and where it settled if it diverged on none."""
        row = next((row for row in method["configurations"] if row["configuration"] == number), None)
        settled = f" @ {row['settles']:.0f}" if row and not row["diverged"] else ""
        return f"{median(self.losses):.3f}{settled}"


def tail(columns: dict[str, list[Any]], metric: str, last: int) -> float:
    """The mean of a metric over the rounds after `last`."""
    pairs = zip(columns["round"], columns[metric], strict=True)
    values = [float(value) for at, value in pairs if at > last and value is not None]
    return sum(values) / len(values)


def within(frontier: Sequence[dict[str, float]], rounds: float) -> str:
    """The frontier at a cost."""
    row = [row for row in frontier if row["cost"] <= rounds][-1]
    return f"{row['quality']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def band(values: Sequence[float], form: str) -> str:
    """Median, smallest and largest."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def short(value: object) -> str:
    """A hyperparameter with three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
