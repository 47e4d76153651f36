"""What to run for a cost, and the recommendations as few rows: one for each configuration.

`recommendation_within` is the only answer to "what to run for cost c": the last recommendation that costs at most c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from driftline.results.inactive_values import inactive_values
from driftline.results.show.number_text import hyperparameters_text, number
from trainers import cost_named, reporting

Json = Mapping[str, Any]
_DIGITS = 4  # of a printed cost; more if it needs them to lie within its row


@dataclass(frozen=True)
class RecommendationRow:
    """What to run for costs up to a limit.

    Attributes:
        start: Cost from which the configuration is recommended.
        end: A cost below that of the next recommended configuration, with as few digits as possible.
        stop: Round to stop at, for the largest of these costs.
        configuration: Its row in the result's `configurations`; None if it diverged on every seed.
        quality: What to expect of this run: promise, lowest and highest of its seeds.
        inactive: Hyperparameters of the configuration that change nothing.
        test: The test metric of this run, where the quality is a validation metric; else None.
    """

    start: float
    end: float
    stop: int
    configuration: Json | None
    quality: tuple[float, float, float]
    inactive: frozenset[str] = frozenset()
    test: float | None = None

    @property
    def run(self) -> str:
        """What to run, in words."""
        if self.configuration is None:
            return "a configuration that diverged later on every seed"
        return hyperparameters_text(self.configuration["hyperparameters"], self.inactive)

    @property
    def end_text(self) -> str:
        """`end`, exactly."""
        return number(self.end, 15)


def recommendation_rows(result: Json, label: str) -> list[RecommendationRow]:
    """The recommendations of a label, a row for each configuration.

    Args:
        result: The document from `frontier_document`.
        label: The label.
    """
    method, last = result["methods"][label], result["scale"]["last"]
    rows = method["recommendations"]
    by_number = {row["configuration"]: row for row in method["configurations"]}
    begins = [i for i in range(len(rows)) if not i or rows[i]["configuration"] != rows[i - 1]["configuration"]]
    whole = cost_named(result["definitions"]["parameters"]["cost"]).whole
    spans = []
    for begin, following in pairwise([*begins, len(rows)]):
        start, closing = rows[begin]["cost"], rows[following - 1]
        below = rows[following]["cost"] if following < len(rows) else math.nextafter(last, math.inf)
        end = _shortest(closing["cost"], below, whole=whole)
        configuration = by_number.get(closing["configuration"])
        free = inactive_values(method, configuration["hyperparameters"]) if configuration else frozenset()
        run = closing["round"], configuration, _quality(closing)
        spans.append(RecommendationRow(start, end, *run, free, closing.get("test")))
    return spans


def recommendation_within(result: Json, label: str, cost: float) -> RecommendationRow | None:
    """What to run for at most this cost: the last recommendation of a label that costs no more.

    Args:
        result: The document from `frontier_document`.
        label: The label.
        cost: The most that training may cost.

    Returns:
        The row, with the stopping round and the quality for this cost; None if no recommendation is that cheap.
    """
    step = recommendation_at(result["methods"][label], cost)
    if step is None:
        return None
    row = next(row for row in reversed(recommendation_rows(result, label)) if row.start <= cost)
    return replace(row, stop=step["round"], quality=_quality(step), test=step.get("test"))


def recommendation_at(method: Json, cost: float) -> Json | None:
    """The last recommendation of a label's part of the result that costs at most this; None if there is none."""
    return next((row for row in reversed(method["recommendations"]) if row["cost"] <= cost), None)


def test_metric(result: Json) -> str | None:
    """The test metric beside the quality in a result; None unless the quality is a validation metric."""
    return reporting(result["definitions"]["parameters"]["metric"])


def test_text(row: RecommendationRow) -> str:
    """The test metric of a row, or a dash."""
    return "-" if row.test is None else number(row.test)


def final(method: Json) -> Json | None:
    """The last row of a label's frontier; None without one."""
    return method["frontier"][-1] if method["frontier"] else None


def _quality(row: Json) -> tuple[float, float, float]:
    return row["quality"], row["low"], row["high"]


def _shortest(least: float, below: float, *, whole: bool) -> float:
    """The largest number of few digits that is at least one cost and below another."""
    limit = math.nextafter(below, 0.0)
    if whole and math.ceil(below) - 1 >= least:
        limit = math.ceil(below) - 1
    for digits in range(_DIGITS, 16):
        unit = 10.0 ** (math.floor(math.log10(limit)) + 1 - digits)
        short = float(f"{math.floor(limit / unit) * unit:.{digits}g}")
        if least <= short <= limit:
            return short
    return limit
