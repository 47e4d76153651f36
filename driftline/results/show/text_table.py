"""The result as plain text: a summary of all labels, then the frontier of each, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.results.curves import UNITS
from driftline.results.directions import sign
from driftline.results.show.number_text import banded, hyperparameters_text, number
from driftline.results.show.theory_text import agreement

Json = Mapping[str, Any]


def table(result: Json, width: int = 80) -> str:
    """All labels' frontiers as text.

    Args:
        result: The document from `frontier_document`.
        width: Columns of the terminal, at least 60.

    Returns:
        Lines, the last without a line break: metric and cost; a row for each label (hypervolume and best quality with
        their bands over seeds, the best configuration's cost to settle, trials, diverged); on quadratic tasks the
        difference between theory and measurement; then every label's frontier.
    """
    parameters = result["definitions"]["parameters"]
    metric, cost = parameters["metric"], parameters["cost"]
    lines = [f"{result['study']}: {metric} ({parameters['direction']}) against {cost}", ""]
    lines += _columns(_summary_rows(result["methods"], metric), right=(3, 4, 5), width=width)
    lines += textwrap.wrap(
        "In brackets: smallest and largest over seeds. Settles: cost at which the best configuration settles.",
        width,
    )
    if said := agreement(result):
        lines += ["", "Theory against measurement, relative differences (medians):"]
        lines += [
            row
            for line in said
            for row in textwrap.wrap(line, width - 2, initial_indent="  ", subsequent_indent="    ")
        ]
    for label, method in result["methods"].items():
        lines += ["", *_frontier(label, method, metric, cost, width)]
    return "\n".join(line.rstrip() for line in lines)


def best_configuration(method: Json, metric: str) -> Json | None:
    """The configuration with the best median tail in the Pareto set; None if the set is empty."""
    on = [row for row in method["configurations"] if row["pareto"]]
    return max(on, key=lambda row: sign(metric) * row["quality"], default=None)


def _summary_rows(methods: Json, metric: str) -> list[list[str]]:
    rows = [["label", "hypervolume", f"best {metric}", "settles", "trials", "diverged"]]
    for label, method in methods.items():
        volume = method["hypervolume_band"]
        best = best_configuration(method, metric)
        rows.append(
            [
                label,
                _volume(method["hypervolume"], volume["low"], volume["high"]),
                banded(best["quality"], best["low"], best["high"]) if best else "none",
                number(best["cost"]) if best else "-",
                str(method["ledger"]["trials"]),
                str(method["diverged"]),
            ]
        )
    return rows


def _volume(value: float, low: float, high: float) -> str:
    return f"{value:.3f}" if low == high else f"{value:.3f} ({low:.3f}-{high:.3f})"


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int], width: int) -> list[str]:
    """Rows as aligned columns; the first column is shortened if they would be too wide."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    gap = 2 if 8 + sum(widths[1:]) + 2 * (len(widths) - 1) <= width else 1
    widths[0] = max(8, min(widths[0], width - sum(widths[1:]) - gap * (len(widths) - 1)))
    return [
        (" " * gap).join(
            cell.rjust(size) if index in right else _cut(cell, size).ljust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "~"


def _frontier(label: str, method: Json, metric: str, cost: str, width: int) -> list[str]:
    reported = method["reported"]
    on = [row for row in method["configurations"] if row["pareto"]]
    if not on:
        return [
            f"{label}: no point yet"
            if not reported["trials"]
            else f"{label}: no trial came half of the way to the study's best quality"
        ]
    seeds = len(reported["seeds"])
    lines = [f"{label}: frontier, {reported['phase']}, {seeds} seed{'s' if seeds > 1 else ''}"]
    heads = [UNITS[cost].split(",")[0], metric]
    cells = [[number(row["cost"]), banded(row["quality"], row["low"], row["high"])] for row in on]
    sizes = [max(len(row[index]) for row in [heads, *cells]) for index in range(2)]
    lead = "  {:>" + str(sizes[0]) + "}  {:<" + str(sizes[1]) + "}  "
    lines.append(lead.format(*heads) + "hyperparameters")
    for row, cell in zip(on, cells, strict=True):
        first = lead.format(*cell)
        room = max(width - len(first), 20)
        texts = textwrap.wrap(hyperparameters_text(row["hyperparameters"]), room) or [""]
        lines += [first + texts[0], *(" " * len(first) + text for text in texts[1:])]
    return lines
