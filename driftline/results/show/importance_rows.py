"""How much each hyperparameter matters, as rows for tables."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.results.curves import unit
from driftline.results.show.escaped_text import escaped
from driftline.results.show.number_text import number

Json = Mapping[str, Any]
_WIDTH = 80
NOTE = (
    "Shares of what sets the best quarter of a method's search trials apart from all of them: in speed, in the quality "
    "within some budgets, and at the end. -: no more than chance gives in so few trials."
)


def importance_rows(result: Json) -> list[dict[str, Any]]:
    """A row for each hyperparameter of each label, the largest shares first.

    Args:
        result: The document from `frontier_document`.

    Returns:
        ``{"label", "trials", "hyperparameter", "speed", "along": [{"cost", "share"}], "quality"}``; shares are None
        where there are too few trials to tell.
    """
    rows: list[dict[str, Any]] = []
    for label, method in result["methods"].items():
        whole = method["importance"]
        label_rows: list[dict[str, Any]] = [
            {
                "label": label,
                "trials": whole["trials"],
                "hyperparameter": name,
                "speed": whole["speed"][name],
                "along": [{"cost": row["cost"], "share": row["shares"][name]} for row in whole["along"]],
                "quality": share,
            }
            for name, share in whole["quality"].items()
        ]
        rows += sorted(label_rows, key=lambda row: -sum(share or 0.0 for share in _shares(row)))
    return rows


def importance_cells(result: Json) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """The head of each share, and (label, hyperparameter, shares as text); a label with too few trials has one row."""
    rows = importance_rows(result)
    counted = unit(result["definitions"]["parameters"]["cost"])
    heads = [
        "speed",
        *(f"{number(point['cost'])} {counted}" for point in (rows[0]["along"] if rows else ())),
        "quality",
    ]
    cells: list[tuple[str, str, list[str]]] = []
    for label in result["methods"]:
        label_rows = [row for row in rows if row["label"] == label]
        if any(share is not None for row in label_rows for share in _shares(row)):
            cells += [(label, row["hyperparameter"], [_text(share) for share in _shares(row)]) for row in label_rows]
        elif label_rows:
            cells.append((label, f"too few trials to tell ({label_rows[0]['trials']})", ["-"] * len(heads)))
    return heads, cells


def importance_text(result: Json) -> str:
    """The table as text; a note says what it holds."""
    heads, cells = importance_cells(result)
    if not cells:
        return "No method has a hyperparameter that differs between its trials."
    rows = [("method", "hyperparameter", heads), *cells]
    first, second = (max(len(row[at]) for row in rows) for at in (0, 1))
    widths = [max(len(row[2][at]) for row in rows) for at in range(len(heads))]
    lines = [
        f"{label:{first}}  {name:{second}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(shares, widths, strict=True))
        for label, name, shares in rows
    ]
    return "\n".join(escaped(line.rstrip()) for line in [*lines, "", *textwrap.wrap(NOTE, _WIDTH)])


def _shares(row: Json) -> Sequence[float | None]:
    return [row["speed"], *(point["share"] for point in row["along"]), row["quality"]]


def _text(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
