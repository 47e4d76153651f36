"""Prints the tables of docs/first-results.md from output folders of `driftline run`, as Markdown.

python examples/first-results/tables.py out/searches out/by-label ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from driftline import Study, frontier

COSTS = (5, 10, 20, 50, 100, 150)


def main(folders: Sequence[str]) -> None:
    """Prints all tables of each folder."""
    for folder in folders:
        study, result = Study.from_yaml(Path(folder) / "study.yaml"), frontier(folder)
        methods = result.data["methods"]
        print(f"\n## {study.name}\n")
        recommended(methods, [cost for cost in COSTS if cost <= result.data["scale"]["last"]])
        if study.sampler == "grid":
            grid(methods)
        for first, second in combinations(methods, 2):
            compared = result.compare(first, second)
            spans = (
                f"{row['better']} {row['from']:.0f}-{row['to']:.0f}" for row in compared["ranges"] if row["better"]
            )
            print(f"- {first}, {second}: {compared['why']} Better along the cost: {', '.join(spans) or 'neither'}.")


def recommended(methods: Mapping[str, Any], costs: Sequence[float]) -> None:
    """Each label's area, frontier at some costs, last recommendation, and number of diverged trials."""
    rows = []
    for label, method in methods.items():
        found = {row["configuration"]: row["hyperparameters"] for row in method["configurations"]}
        last = found.get(method["recommendations"][-1]["configuration"], {})
        at = [[row for row in method["frontier"] if row["cost"] <= cost][-1] for cost in costs]
        rows.append(
            [
                f"`{label}`",
                f"{method['area']:.3f} ({method['area_band']['low']:.3f}-{method['area_band']['high']:.3f})",
                *(f"{row['quality']:.3f} ({row['low']:.3f}-{row['high']:.3f})" for row in at),
                ", ".join(f"{name} {short(value)}" for name, value in last.items()),
                str(method["diverged"]),
            ]
        )
    table(["label", "area", *(f"{cost:g} rounds" for cost in costs), "run at the end", "diverged"], rows)


def grid(methods: Mapping[str, Any]) -> None:
    """Where each configuration ends and settles; a column for each server_lr, "-" where a seed diverged."""
    cells: dict[tuple[str, str], dict[float, str]] = {}
    for label, method in methods.items():
        for row in method["configurations"]:
            rest = dict(row["hyperparameters"])
            rate = rest.pop("server_lr")
            text = "-" if row["diverged"] else f"{row['ends']:.3f} @ {row['settles']:.0f}"
            cells.setdefault((label, ", ".join(f"{name} {short(value)}" for name, value in rest.items())), {})[rate] = (
                text
            )
    rates = sorted({rate for row in cells.values() for rate in row})
    rows = [
        [f"`{label}`", rest, *(row.get(rate, "-") for rate in rates)] for (label, rest), row in sorted(cells.items())
    ]
    table(["ends @ settles", "with", *(f"server_lr {rate:g}" for rate in rates)], rows)


def short(value: object) -> str:
    """A hyperparameter with three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table."""
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
