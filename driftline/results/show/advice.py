"""One sentence for one cost: what to run, what to expect, and in how many seeds and searches it is better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.results.curves import Array, unit
from driftline.results.scale import stored_axis
from driftline.results.show.number_text import banded, number
from driftline.results.show.recommendation_rows import RecommendationRow, recommendation_within
from driftline.study.budget import LEAST_PAIRS
from driftline.study.directions import Metric, sign

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Wins:
    """In how many cases the cross-fitted quality of one label is better than that of another.

    Attributes:
        seeds: Confirmation seeds, of all searches, in which it is better.
        of_seeds: Seeds that both labels have.
        searches: Searches in which its mean over the seeds is better.
        of_searches: Searches that both labels have.
        equal_seeds, equal_searches: Those in which both labels are equal, as where they found the same configuration.
    """

    seeds: int
    of_seeds: int
    searches: int
    of_searches: int
    equal_seeds: int = 0
    equal_searches: int = 0

    def text(self, label: str) -> str:
        """``better than fedprox in 3 of 12 seeds and 1 of 6 searches, equal in 8 and 4``."""
        seeds = f"better than {label} in {self.seeds} of {self.of_seeds} seeds"
        if self.of_searches == 1:
            return f"{seeds} of one search" + (f", equal in {self.equal_seeds}" if self.equal_seeds else "")
        equal = f", equal in {self.equal_seeds} and {self.equal_searches}" if self.equal_seeds else ""
        return f"{seeds} and {self.searches} of {self.of_searches} searches{equal}"


def wins(result: Json, label: str, other: str, costs: Iterable[float]) -> list[Wins]:
    """How often a label is better than another at each of these costs, within the range of the result."""
    axis = stored_axis(result)
    at = np.clip(np.array(list(costs)), result["scale"]["first"], None)
    curves = [_by_case(result["methods"][name]["cross_fitted"]) for name in (label, other)]
    cases = sorted(curves[0].keys() & curves[1].keys())
    if not cases:
        return [Wins(0, 0, 0, 0)] * len(at)
    table = np.array([[axis.merit(_at(of_label[case], at)) for case in cases] for of_label in curves])
    difference = axis.without_rounding(table[0]) - axis.without_rounding(table[1])
    searches = [search for search, _ in cases]
    means = np.array(
        [difference[[of_case == search for of_case in searches]].mean(axis=0) for search in dict.fromkeys(searches)]
    )
    better, equal = (
        [compared(values, 0).sum(0) for values in (difference, means)] for compared in (np.greater, np.equal)
    )
    return [
        Wins(int(seeds), len(cases), int(search), len(means), int(equal_seeds), int(equal_searches))
        for seeds, search, equal_seeds, equal_searches in zip(*better, *equal, strict=True)
    ]


def offers(result: Json, cost: float, labels: Sequence[str] = ()) -> list[tuple[str, RecommendationRow]]:
    """What each label recommends within a cost, the best expectation first; without what diverged later on every seed.

    Args:
        result: The document from `frontier_document`.
        cost: The most that training may cost.
        labels: Only these; all by default.
    """
    recommendations = [(label, recommendation_within(result, label, cost)) for label in labels or result["methods"]]
    rows = [(label, row) for label, row in recommendations if row is not None and row.configuration is not None]
    parameters = result["definitions"]["parameters"]
    turn = sign(Metric(parameters["metric"], parameters["direction"]))
    return sorted(rows, key=lambda pair: -turn * pair[1].quality[0])


def advice(result: Json, cost: float, labels: Sequence[str] = ()) -> str:
    """What to run within a cost, what to expect, and in how many seeds and searches it is better than the others.

    Args:
        result: The document from `frontier_document`.
        cost: The most that training may cost.
        labels: Only these; all by default.
    """
    parameters = result["definitions"]["parameters"]
    amount = f"{number(cost, 15)} {unit(parameters['cost'])}"
    rows = offers(result, cost, labels)
    if not rows:
        return f"Nothing to recommend for up to {amount}."
    label, row = rows[0]
    assert row.configuration is not None  # `offers` returns only rows with one
    text = (
        f"For up to {amount}: {label}, configuration {row.configuration['configuration']}, stopped at round "
        f"{row.stop}; expect {parameters['metric']} {banded(*row.quality)}."
    )
    counted = [(other, wins(result, label, other, [cost])[0]) for other, _ in rows[1:]]
    counted = [(other, count) for other, count in counted if count.of_seeds]
    if not counted:
        return text
    better = ", ".join(count.text(other) for other, count in counted)
    least = min(count.of_searches for _, count in counted)
    undecided = (
        f" {'One search does' if least == 1 else f'{least} searches do'} not decide which method is better (needs "
        f"{LEAST_PAIRS})."
    )
    return f"{text} {better[0].upper()}{better[1:]}.{undecided if least < LEAST_PAIRS else ''}"


def _by_case(curves: Sequence[Json]) -> dict[tuple[int, int], Json]:
    return {(row["search"], row["seed"]): row for row in curves}


def _at(curve: Json, costs: Array) -> Array:
    """The values of a step function at these costs, none of them before its first."""
    return np.array(curve["quality"])[np.searchsorted(curve["cost"], costs, side="right") - 1]
