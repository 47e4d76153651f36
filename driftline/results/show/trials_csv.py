"""trials.csv: one row per trial, for spreadsheets and data frames. The full curves stay in the store."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from driftline.results.curves import LARGEST, TrialCurve, numbers
from driftline.results.document import Reading
from driftline.results.objectives import speed
from driftline.results.scale import stored_axis
from driftline.results.settling import Settled, settled_trials
from driftline.results.show.escaped_text import spreadsheet_cell
from trainers import COUNTERS

FIELDS = (
    "trial", "label", "phase", "number", "seed", "configuration", "state", "rounds_done", "settles", "ends",
    "speed", "recommended", "pareto", *COUNTERS, "error",
)  # fmt: skip
"""The first columns; `recommended` and `pareto` are about the trial's configuration, `wall_seconds` about its pack."""

_NO_QUALITY = frozenset({"round", "diverged", "update_norm", *FIELDS})


def trials_csv(curves: Iterable[TrialCurve], result: Mapping[str, Any], reading: Reading) -> str:
    """One row per trial, ordered by label, phase and number.

    `FIELDS` are followed by ``final_METRIC`` of every metric, as it was reported last, and by the hyperparameters.

    Args:
        curves: All trials.
        result: Their document from `frontier_document`.
        reading: Chosen metric and cost.

    Returns:
        CSV with a header; lines end with a line feed. A cell without a value is empty: settles, ends and speed of a
        trial that is not COMPLETE, a counter that was not reported, a hyperparameter that the label does not have.
    """
    ordered = sorted(curves, key=lambda curve: curve.key)
    names = sorted({name for curve in ordered for name in curve.hyperparameters})
    metrics = sorted(
        {name for curve in ordered for name in curve.columns if name not in _NO_QUALITY and not name.endswith("_lr")}
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in (*FIELDS, *(f"final_{name}" for name in metrics), *names)])
    marked = {label: _marked(method) for label, method in result["methods"].items()}
    complete = [curve for curve in ordered if curve.state == "COMPLETE"]
    settled = settled_trials(complete, reading.quality, reading.cost, stored_axis(result))
    settlings = {id(curve): settling for curve, settling in zip(complete, settled, strict=True)}
    for curve in ordered:
        row = _row(curve, marked[curve.label], reading, settlings.get(id(curve)))
        values = [row.get(name) for name in FIELDS] + [_last(curve, name) for name in metrics]
        writer.writerow([_cell(value) for value in values + [curve.hyperparameters.get(name) for name in names]])
    return out.getvalue()


def _marked(method: Mapping[str, Any]) -> dict[str, set[int]]:
    """The configurations of a label that are recommended or in its Pareto set."""
    return {
        "recommended": {row["configuration"] for row in method["recommendations"]},
        "pareto": {row["configuration"] for row in method["configurations"] if row["pareto"]},
    }


def _row(
    curve: TrialCurve, marked: Mapping[str, set[int]], reading: Reading, settling: Settled | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(curve, name)
        for name in ("trial", "label", "phase", "number", "seed", "configuration", "state", "error")
    }
    row["rounds_done"] = curve.rounds_done
    row |= {name: curve.configuration in numbers for name, numbers in marked.items()}
    for name in FIELDS[FIELDS.index("exchanges") : FIELDS.index("error")]:
        row[name] = _last(curve, name)
    if settling is not None:
        row |= {"settles": float(settling.cost[0]), "ends": float(settling.end[0])}
        row["speed"] = speed(curve, reading.quality, reading.cost)
    return row


def _last(curve: TrialCurve, metric: str) -> float | None:
    """The last finite value of a metric that a trial reported; None if there is none."""
    values = curve.columns.get(metric)
    if values is None or not values.size:
        return None
    if not abs(values[-1]) <= LARGEST:
        values = values[numbers(values)]
    return float(values[-1]) if values.size else None


def _cell(value: Any) -> Any:
    """Whole numbers without a decimal point, booleans as true and false, None as an empty cell, all else escaped."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if value is None or isinstance(value, (int, float)):
        return "" if value is None else value
    return spreadsheet_cell(str(value))
