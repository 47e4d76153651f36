"""trials.csv: one row per trial, for spreadsheets and data frames. The full curves stay in the store."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from driftline.results.curves import TrialCurve
from driftline.results.directions import sign
from driftline.results.document import Reading
from driftline.results.objectives import speed
from driftline.results.points import progress
from driftline.results.show.escaped_text import spreadsheet_cell

FIELDS = (
    "trial", "label", "phase", "number", "seed", "configuration", "state", "rounds_done", "quality", "cost_to_settle",
    "speed", "counted", "pareto", "exchanges", "bytes_up", "bytes_down", "client_gradients", "wall_seconds",
    "error",
)  # fmt: skip
"""Columns before the hyperparameters: quality is the tail in the metric's own unit, speed is larger when better."""


def trials_csv(curves: Iterable[TrialCurve], result: Mapping[str, Any], reading: Reading, rounds: int) -> str:
    """One row per trial, ordered by label, phase and number; hyperparameters in columns after `FIELDS`, by name.

    Args:
        curves: All trials, also those without a point.
        result: Their document from `frontier_document`, which says which points count.
        reading: Chosen metric and cost.
        rounds: Budget of a trial in rounds.

    Returns:
        CSV with a header; lines end with a line feed. A cell without a value is empty: tail and speed of a trial that
        is not COMPLETE, a counter that was not reported, a hyperparameter that the label does not have.
    """
    ordered = sorted(curves, key=lambda curve: curve.key)
    names = sorted({name for curve in ordered for name in curve.hyperparameters})
    points = {point["trial"]: point for method in result["methods"].values() for point in method["points"]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*FIELDS, *names])
    for curve in ordered:
        row = _row(curve, points.get(curve.trial), reading, rounds)
        writer.writerow(
            [_cell(row.get(name)) for name in FIELDS] + [_cell(curve.hyperparameters.get(n)) for n in names]
        )
    return out.getvalue()


def _row(curve: TrialCurve, point: Mapping[str, Any] | None, reading: Reading, rounds: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(curve, name)
        for name in ("trial", "label", "phase", "number", "seed", "configuration", "state", "error")
    }
    row |= {
        "rounds_done": curve.rounds_done,
        "counted": point is not None,
        "pareto": bool(point and point["pareto"]),
    }
    for name in ("exchanges", "bytes_up", "bytes_down", "client_gradients", "wall_seconds"):
        _, values = curve.metric(name)
        row[name] = float(values[-1]) if values.size else None
    found = progress(curve, reading.quality, reading.cost, rounds) if curve.state == "COMPLETE" else None
    if found is not None:
        row["quality"] = sign(reading.quality) * found.tail
        row["cost_to_settle"] = found.settles
        row["speed"] = speed(curve, reading.quality, reading.cost, rounds)
    return row


def _cell(value: Any) -> Any:
    """Whole numbers without a decimal point, booleans as true and false, None as an empty cell, strings escaped."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, str):
        return spreadsheet_cell(value)
    return "" if value is None else value
