"""The frontiers of a running study as one line of bars for each label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driftline.results.curves import unit
from driftline.results.show.number_text import number

WIDTH = 32
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Sparklines:
    """A picture of every label's frontier, all on one scale.

    Attributes:
        heading: What the bars mean.
        bars: By label, `WIDTH` characters: costs evenly spaced on a logarithmic axis, higher bars for better quality.
    """

    heading: str = ""
    bars: Mapping[str, str] = field(default_factory=dict)


def sparklines(document: Mapping[str, Any], cost: str) -> Sparklines:
    """Draws the frontiers of a result; nothing while no trial has ended.

    Args:
        document: The result, see `driftline.results.document`.
        cost: The objective's cost.
    """
    scale = document["scale"]
    ends = [scale.get(name) for name in ("start", "best", "first", "last")]
    if any(value is None for value in ends) or ends[0] == ends[1]:
        return Sparklines()
    start, best, first, last = ends
    costs = (
        [first * (last / first) ** (at / (WIDTH - 1)) for at in range(WIDTH)] if last > first > 0 else [last] * WIDTH
    )
    floor = scale.get("floor")

    def height(quality: float) -> float:
        if not scale["logarithmic"]:
            return float((quality - start) / (best - start))
        low, high, value = (math.log(max(raw, floor)) for raw in (start, best, quality))
        return (value - low) / (high - low) if high != low else 0.0

    bars = {}
    for label, method in document["methods"].items():
        line = ""
        for most in costs:
            reached = [row["quality"] for row in method["frontier"] if row["cost"] <= most * (1 + 1e-9)]
            part = min(max(height(reached[-1]), 0.0), 1.0) if reached else None
            line += " " if part is None else _BARS[min(int(part * len(_BARS)), len(_BARS) - 1)]
        bars[label] = line
    return Sparklines(f"best within {number(first)} to {number(last)} {unit(cost)}", bars)
