"""Recommendations as few rows: one for each configuration, up to the cost at which another one is recommended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from driftline.results.show.number_text import hyperparameters_text

Json = Mapping[str, Any]


@dataclass(frozen=True)
class RecommendationRow:
    """What to run for costs up to a limit.

    Attributes:
        start: Cost from which the configuration is recommended.
        end: Cost up to which it is recommended.
        stop: Round to stop at, for the largest of these costs.
        configuration: Its row in the result's `configurations`; None if it diverged on every seed.
        quality: What the frontier gives at the largest of these costs: median, low, high.
    """

    start: float
    end: float
    stop: int
    configuration: Json | None
    quality: tuple[float, float, float]

    @property
    def run(self) -> str:
        """What to run, in words."""
        if self.configuration is None:
            return "a configuration that diverged later on every seed"
        return hyperparameters_text(self.configuration["hyperparameters"])


def recommendation_rows(method: Json, last: float) -> list[RecommendationRow]:
    """The recommendations of a label.

    Args:
        method: The label's part of the result.
        last: Last cost of the scale.
    """
    rows = method["recommendations"]
    by_number = {row["configuration"]: row for row in method["configurations"]}
    begins = [i for i in range(len(rows)) if not i or rows[i]["configuration"] != rows[i - 1]["configuration"]]
    spans = []
    for begin, following in pairwise([*begins, len(rows)]):
        closing = rows[following - 1]
        end = rows[following]["cost"] if following < len(rows) else last
        configuration = by_number.get(closing["configuration"])
        quality = _frontier_before(method, end if following < len(rows) else math.inf)
        spans.append(RecommendationRow(rows[begin]["cost"], end, closing["round"], configuration, quality))
    return spans


def recommendation_within(method: Json, last: float, cost: float) -> RecommendationRow | None:
    """What to run for at most this cost: the table's row for it, with the stopping round and the quality at this cost.

    At the end of a row these are the numbers that the table prints.

    Args:
        method: The label's part of the result.
        last: Last cost of the scale.
        cost: The most that training may cost.

    Returns:
        None if no recommendation is that cheap.
    """
    rows = [row for row in recommendation_rows(method, last) if row.start <= cost]
    if not rows:
        return None
    row = next((row for row in rows if cost <= row.end), rows[-1])
    limit = math.nextafter(cost, math.inf) if row is rows[-1] else row.end
    step = next(step for step in reversed(method["recommendations"]) if step["cost"] < limit)
    return replace(row, stop=step["round"], quality=_frontier_before(method, limit))


def final(method: Json) -> Json | None:
    """The last row of a label's frontier; None without one."""
    return method["frontier"][-1] if method["frontier"] else None


def _frontier_before(method: Json, cost: float) -> tuple[float, float, float]:
    row = next(row for row in reversed(method["frontier"]) if row["cost"] < cost)
    return row["quality"], row["low"], row["high"]
