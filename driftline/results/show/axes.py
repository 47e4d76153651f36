"""Titles, scales and ranges of the axes, and names in the legend, shared by all figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from driftline.results.modelled_time import Time
from trainers import cost_named

Json = Mapping[str, Any]
COVERED_SEEDS = 6  # number of seeds for which `COVERAGE` was measured
COVERAGE = "about 7 of 10 further seeds"
NEAR_1 = 0.9  # the best accuracy from which errors are drawn


def cost_title(result: Json) -> str:
    """Title of an axis with costs."""
    cost = _parameters(result)["cost"]
    return {"rounds": "communication rounds"}.get(cost, cost_named(cost).unit) + time_text(result)


def time_text(result: Json) -> str:
    """How time is modelled, in brackets; "" for other costs."""
    parameters = _parameters(result).get("time")
    return f" ({Time(**parameters)})" if parameters else ""


def quality_title(result: Json) -> str:
    """Title of the vertical axis; says which way is better."""
    metric = _parameters(result)["metric"].replace("_", " ")
    if quality_scale(result) == "error":
        return f"1 \N{MINUS SIGN} {metric} (lower is better)"
    return f"{metric} ({'higher' if _parameters(result)['direction'] == 'rises' else 'lower'} is better)"


def cost_range(result: Json) -> tuple[float, float]:
    """Range of the horizontal axis: the costs for which there are recommendations."""
    scale = result["scale"]
    return scale["first"], max(scale["last"], scale["first"] * 1.1)


def quality_scale(result: Json) -> Literal["log", "error", "linear"]:
    """The vertical axis.

    Returns:
        "log" where results are compared on a logarithm and no value is 0. "error" for accuracies that come near 1,
        which are drawn as 1 - accuracy on a logarithmic axis: there 0.98 and 0.99 are as far apart as 0.96 and 0.98.
        "linear" otherwise.
    """
    rows = [row for method in result["methods"].values() for row in method["frontier"]]
    lowest, highest = min((row["low"] for row in rows), default=0.0), max((row["high"] for row in rows), default=0.0)
    if result["scale"]["logarithmic"]:
        return "log" if lowest > 0 else "linear"
    share = {"accuracy", "acc"} & set(re.split(r"[^a-z0-9]+", _parameters(result)["metric"].lower()))
    return "error" if share and lowest >= 0 and NEAR_1 <= highest < 1 else "linear"


def legend_name(label: str, method: Json) -> str:
    """The label with the number of its diverged trials: ``fedavg (5 of 56 diverged)``."""
    diverged, trials = method["diverged"], method["granted"]["trials"]
    return f"{label} ({diverged} of {trials} diverged)" if diverged else label


def band_text(result: Json) -> str:
    """Caption that explains lines and bands."""
    methods = [method for method in result["methods"].values() if method["frontier"]]
    confirmed = [method for method in methods if method["reported"]["phase"] == "confirmation"]
    seeds = sorted({row["seeds"] for method in confirmed for row in method["configurations"]})
    count = "no" if not seeds else str(seeds[0]) if seeds[0] == seeds[-1] else f"{seeds[0]}-{seeds[-1]}"
    if result["deterministic"]:
        lines = "nothing is random: one run stands for all seeds"
    elif methods and not confirmed:
        lines = "the search's own best, which flatters: no fresh seeds have judged it"
    elif seeds and seeds[-1] > 1:
        lines = (
            f"mean of a run's {count} seeds, corrected for the optimism of the choice; band: lowest to highest of them"
        )
        lines += f", {COVERAGE}" if seeds[-1] >= COVERED_SEEDS else ""
    else:
        lines = "one seed, chosen by the search"
    searched = search_only(result) if confirmed and not result["deterministic"] else []
    theory = any(method.get("theory") for method in methods)
    return (
        f"What to expect of the recommendation for a cost ({lines})."
        + (f" Of {', '.join(searched)}: the search's own best, which flatters." if searched else "")
        + (" Dashed: the theory's prediction." if theory else "")
    )


def search_only(result: Json) -> list[str]:
    """Labels whose frontier is the search's own best."""
    methods = result["methods"].items()
    return [label for label, method in methods if method["frontier"] and method["reported"]["phase"] == "search"]


def _parameters(result: Json) -> Json:
    parameters: Json = result["definitions"]["parameters"]
    return parameters
