"""Titles, scales and ranges of the axes, and names in the legend, shared by both figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.results.curves import UNITS

Json = Mapping[str, Any]
LOG_FROM = 10.0


def cost_title(result: Json) -> str:
    """Title of the horizontal axis."""
    return {"rounds": "communication rounds"}.get(_parameters(result)["cost"], UNITS[_parameters(result)["cost"]])


def quality_title(result: Json) -> str:
    """Title of the vertical axis; says which way is better."""
    better = "higher" if _parameters(result)["direction"] == "rises" else "lower"
    return f"{_parameters(result)['metric'].replace('_', ' ')} ({better} is better)"


def cost_range(result: Json) -> tuple[float, float]:
    """Range of the horizontal axis: from one round to the budget."""
    scale = result["scale"]
    return scale["one_round"], max(scale["budget"], scale["one_round"] * 1.1)


def quality_log(result: Json) -> bool:
    """Whether the vertical axis is logarithmic: for positive losses that shrink by more than `LOG_FROM`."""
    if _parameters(result)["direction"] == "rises":
        return False
    seen = [row[key] for method in result["methods"].values() for row in method["frontier"] for key in ("low", "high")]
    return bool(seen) and min(seen) > 0 and max(seen) / min(seen) > LOG_FROM


def legend_name(label: str, method: Json) -> str:
    """The label with the number of its diverged trials: ``fedavg (5 of 56 diverged)``."""
    diverged, trials = method["diverged"], method["granted"]["trials"]
    return f"{label} ({diverged} of {trials} diverged)" if diverged else label


def band_text(result: Json) -> str:
    """Caption that explains lines, bands and markers."""
    seeds = sorted({len(method["reported"]["seeds"]) for method in result["methods"].values() if method["frontier"]})
    several = bool(seeds) and seeds[-1] > 1
    count = str(seeds[0]) if seeds and seeds[0] == seeds[-1] else f"{seeds[0]}-{seeds[-1]}" if seeds else "no"
    lines = f"median of {count} seeds, band: lowest to highest" if several else "one seed"
    theory = any(method.get("theory") for method in result["methods"].values())
    return (
        f"Lines: best quality within a cost ({lines}). Markers: final quality of a configuration, at the cost from "
        "which it stays near that quality; large markers: the Pareto set."
        + (" Rings on dashed lines: the theory's prediction." if theory else "")
    )


def _parameters(result: Json) -> Json:
    found: Json = result["definitions"]["parameters"]
    return found
