"""Titles, scales and ranges of the axes, and names in the legend, shared by all figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.results.curves import UNITS
from driftline.results.modelled_time import Time

Json = Mapping[str, Any]


def cost_title(result: Json) -> str:
    """Title of an axis with costs."""
    cost = _parameters(result)["cost"]
    return {"rounds": "communication rounds"}.get(cost, UNITS[cost]) + time_text(result)


def time_text(result: Json) -> str:
    """How time is modelled, in brackets; "" for other costs."""
    given = _parameters(result).get("time")
    return f" ({Time(**given)})" if given else ""


def quality_title(result: Json) -> str:
    """Title of the vertical axis; says which way is better."""
    better = "higher" if _parameters(result)["direction"] == "rises" else "lower"
    return f"{_parameters(result)['metric'].replace('_', ' ')} ({better} is better)"


def cost_range(result: Json) -> tuple[float, float]:
    """Range of the horizontal axis: the costs for which there are recommendations."""
    scale = result["scale"]
    return scale["first"], max(scale["last"], scale["first"] * 1.1)


def quality_log(result: Json) -> bool:
    """Whether the vertical axis is logarithmic: where results are compared on a logarithm, and no value is 0."""
    seen = [row["low"] for method in result["methods"].values() for row in method["frontier"]]
    return bool(result["scale"]["logarithmic"]) and min(seen, default=0.0) > 0


def legend_name(label: str, method: Json) -> str:
    """The label with the number of its diverged trials: ``fedavg (5 of 56 diverged)``."""
    diverged, trials = method["diverged"], method["granted"]["trials"]
    return f"{label} ({diverged} of {trials} diverged)" if diverged else label


def band_text(result: Json) -> str:
    """Caption that explains lines and bands."""
    methods = [method for method in result["methods"].values() if method["frontier"]]
    seeds = sorted({len(method["reported"]["seeds"]) for method in methods})
    count = "no" if not seeds else str(seeds[0]) if seeds[0] == seeds[-1] else f"{seeds[0]}-{seeds[-1]}"
    if result["deterministic"]:
        lines = "nothing is random: one run stands for all seeds"
    elif any(method["reported"]["phase"] == "search" for method in methods):
        lines = "the search's own best, which flatters: no fresh seeds have judged it"
    elif seeds and seeds[-1] > 1:
        lines = f"median of {count} seeds that did not choose, band: lowest to highest"
    else:
        lines = "one seed, chosen by the search"
    several = any("search_low" in row for method in methods for row in method["frontier"])
    theory = any(method.get("theory") for method in methods)
    return (
        f"What the recommendation for a cost gives ({lines})."
        + (" Lighter band: medians of the searches." if several else "")
        + (" Dashed: the theory's prediction." if theory else "")
    )


def _parameters(result: Json) -> Json:
    found: Json = result["definitions"]["parameters"]
    return found
