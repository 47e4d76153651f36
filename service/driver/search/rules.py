"""The rules that decide which trials continue beyond a rung, as pure functions of the trials that have arrived there.

*Halving* compares trials as they are, *extrapolation* and *forecast* what they may become (forecast.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np

from driftline.results.curves import Array
from driftline.results.pareto import crowding, layers, select
from driftline.study.rung_rounds import FACTOR
from service.driver.search.forecast import Prospect

LEAST = 0.03
"""Extrapolation: smallest promise of a trial that continues, as a share of the area under the expected frontier."""

MOST = 0.5
"""Extrapolation: largest share of a generation that continues."""

GRID = 32
"""Costs at which frontiers are compared."""

Values = tuple[float, ...]
"""The values that the sampler maximises, of a trial up to some round."""


@dataclass(frozen=True)
class Arrival:
    """A trial at a rung.

    Attributes:
        values: The values that its sampler is told.
        prospect: What it may still reach; None unless the rule asks for it.
    """

    values: Values
    prospect: Prospect | None = None


class Rule(Protocol):
    """Decides which trials of a generation continue beyond a rung.

    Attributes:
        looks_ahead: Whether it needs the prospects of trials.
    """

    looks_ahead: ClassVar[bool]

    def promoted(self, arrived: Mapping[int, Arrival | None], own: Sequence[int]) -> set[int]:
        """The numbers of the trials that continue.

        Args:
            arrived: The trials of this generation and of earlier ones that were to train until the rung, by number;
                None for those that diverged or failed before.
            own: Numbers of this generation's trials among them.
        """
        ...


@dataclass(frozen=True)
class Halving:
    """Promotes a fixed share of each generation, rounded up; and the ends of the Pareto set, even beyond this share.

    Trials are ranked among all that have arrived: by non-dominated sorting, within a layer by crowding distance, and
    then by number. Trials that diverged or failed are never promoted.

    Attributes:
        factor: One in `factor` trials is promoted.
    """

    looks_ahead: ClassVar[bool] = False
    factor: int = FACTOR

    def promoted(self, arrived: Mapping[int, Arrival | None], own: Sequence[int]) -> set[int]:
        """The best of the generation by their rank among all trials, and the ends of the Pareto set."""
        finite = {number: arrival.values for number, arrival in sorted(arrived.items()) if arrival is not None}
        numbers, members = list(finite), set(own)
        ranked, at_ends = _ranked(tuple(finite.values()))
        best = [numbers[index] for index in ranked if numbers[index] in members][: -(-len(members) // self.factor)]
        return {*best, *({numbers[index] for index in at_ends} & members)}


@dataclass(frozen=True)
class Extrapolation:
    """Promotes the trials of a generation that promise to change the frontier at larger costs; at most half of them.

    A trial's promise is the area that it is expected to add to the frontier beyond its cost at the rung: the expected
    improvement over the best that any other trial that has arrived is expected to reach within the same cost, as a mean
    over log10 cost. Trials are promoted by decreasing promise, while it is at least a share of the area between
    the untrained model and the expected frontier. The ends of the Pareto set of quality and speed always continue, and
    count in the half. Trials that diverged or failed never continue.

    Attributes:
        least: Smallest promise, as a share of the area under the expected frontier.
        most: Largest share of a generation that continues, rounded up; the ends of the Pareto set may exceed it.
    """

    looks_ahead: ClassVar[bool] = True
    least: float = LEAST
    most: float = MOST

    def promoted(self, arrived: Mapping[int, Arrival | None], own: Sequence[int]) -> set[int]:
        """The trials of the generation with the largest promise, and the ends of the Pareto set."""
        finite = {number: arrival for number, arrival in sorted(arrived.items()) if arrival is not None}
        numbers, members = list(finite), set(own)
        at_ends = {numbers[index] for index in ends([arrival.values for arrival in finite.values()])} & members
        shares = _promises(tuple(arrival.prospect for arrival in finite.values() if arrival.prospect is not None))
        ranked = sorted(
            (-share, number) for number, share in zip(numbers, shares, strict=True) if number in members - at_ends
        )
        room = max(int(-(-len(members) * self.most // 1)) - len(at_ends), 0)
        return at_ends | {number for share, number in ranked[:room] if -share >= self.least}


@dataclass(frozen=True)
class Forecast:
    """Promotes a fixed share of each generation, rounded up: two thirds of it by final quality, the rest as halving.

    The ends of the Pareto set come first, even beyond this share. Then come those whose curves are expected to end
    best, then the best by their rank among all that have arrived. Trials that diverged or failed are never promoted.

    Attributes:
        factor: One in `factor` trials is promoted.
    """

    looks_ahead: ClassVar[bool] = True
    factor: int = FACTOR

    def promoted(self, arrived: Mapping[int, Arrival | None], own: Sequence[int]) -> set[int]:
        """The ends of the Pareto set, those of the generation that are expected to end best, and the best by rank."""
        finite = {number: arrival for number, arrival in sorted(arrived.items()) if arrival is not None}
        numbers, members = list(finite), set(own)
        places = -(-len(members) // self.factor)
        comparable = _comparable(tuple(arrival.prospect for arrival in finite.values() if arrival.prospect is not None))
        merits = {number: prospect.merits[-1] for number, prospect in zip(numbers, comparable, strict=True)}
        ahead = sorted(
            (number for number in numbers if number in members), key=lambda number: (-merits[number], number)
        )
        ranked, at_ends = _ranked(tuple(arrival.values for arrival in finite.values()))
        extreme = {numbers[index] for index in at_ends} & members
        order = [
            *ahead[: max(1, round(2 * places / 3))],
            *(numbers[index] for index in ranked if numbers[index] in members),
        ]
        others = [number for number in dict.fromkeys(order) if number not in extreme]
        return {*extreme, *others[: max(places - len(extreme), 0)]}


RULES: dict[str, type[Halving] | type[Extrapolation] | type[Forecast]] = {
    "halving": Halving,
    "extrapolation": Extrapolation,
    "forecast": Forecast,
}
"""The rules by name, as a study chooses one."""


def ends(values: Sequence[Values]) -> list[int]:
    """Indices of the ends of the Pareto set; of equal values, the lowest.

    Examples:
        >>> ends([(0, 3), (2, 2), (3, 0), (3, 0), (1, 1)])
        [0, 2]
    """
    if not values:
        return []
    table = np.array(values, dtype=np.float64)
    (first,) = np.nonzero(layers(table) == 0)
    return [int(index) for index in first[np.isinf(crowding(table[first]))]]


@lru_cache(maxsize=256)
def _ranked(values: tuple[Values, ...]) -> tuple[list[int], list[int]]:
    """Indices of these values, best first, and of the ends of their Pareto set; cached for all decisions."""
    return select(values, len(values)), ends(values)


def _comparable(prospects: tuple[Prospect, ...]) -> tuple[Prospect, ...]:
    """These prospects on one scale."""
    return (
        prospects
        if all(prospect.logarithmic for prospect in prospects)
        else tuple(prospect.linear() for prospect in prospects)
    )


@lru_cache(maxsize=256)
def _promises(prospects: tuple[Prospect, ...]) -> tuple[float, ...]:
    """Of each trial, the share of the expected frontier's area that it is expected to add; cached."""
    if not prospects:
        return ()
    from scipy.special import ndtr  # slow to import

    comparable = _comparable(prospects)
    first = min(prospect.costs[0] for prospect in comparable)
    grid = np.geomspace(first, max(prospect.costs[-1] for prospect in comparable), GRID)
    merits = np.stack([_at(grid, prospect.costs, prospect.merits, prospect.start) for prospect in comparable])
    spreads = np.stack([_at(grid, prospect.costs, prospect.spreads, 0.0) for prospect in comparable])
    start = float(np.mean([prospect.start for prospect in comparable]))
    frontier = merits.max(axis=0)
    area = float(np.maximum(frontier - start, 0.0).sum())
    if area <= 0:
        return (0.0,) * len(comparable)
    others = np.tile(frontier, (len(comparable), 1))  # the best of all others; for the leader, the second best
    others[merits.argmax(axis=0), np.arange(GRID)] = np.sort([*merits, np.full(GRID, start)], axis=0)[-2]
    gap = merits - others
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(spreads > 0, gap / spreads, 0.0)
    gain = np.where(spreads > 0, gap * ndtr(score) + spreads * np.exp(-(score**2) / 2) / np.sqrt(2 * np.pi), 0.0)
    return tuple((np.maximum(gain, 0.0).sum(axis=1) / area).tolist())


def _at(grid: Array, costs: Sequence[float], values: Sequence[float], before: float) -> Array:
    return np.interp(np.log(grid), np.log(costs), values, left=before)
