"""Pareto sets: non-dominated sorting, crowding distance, and hypervolume."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from driftline.results.curves import Array


def non_dominated(cost: ArrayLike, quality: ArrayLike) -> NDArray[np.bool_]:
    """Which points are in the Pareto set: no other is at least as cheap and as good, and better in one of the two.

    Equal points do not dominate each other.

    Args:
        cost: (n,), smaller is better.
        quality: Oriented, (n,), larger is better.

    Returns:
        (n,) booleans; they do not depend on the order of the points.

    Examples:
        >>> non_dominated([1, 2, 2, 3], [0.5, 0.4, 0.9, 0.9]).tolist()
        [True, False, True, False]
    """
    costs, qualities = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    on = np.zeros(len(costs), dtype=bool)
    best, kept = -np.inf, (np.nan, np.nan)
    for index in np.lexsort((-qualities, costs)):
        point = (costs[index], qualities[index])
        if point[1] > best:
            best, kept = point[1], point
        on[index] = point == kept
    return on


def layers(values: ArrayLike) -> NDArray[np.int64]:
    """Non-dominated sorting: 0 for points that no point dominates, 1 for those that only layer 0 dominates, and so on.

    Args:
        values: (n, objectives), all larger when better.

    Returns:
        The layer of each point, (n,).

    Examples:
        >>> layers([[1, 1], [2, 0], [0, 0], [2, 2]]).tolist()
        [1, 1, 2, 0]
    """
    table = np.asarray(values, dtype=np.float64)
    count = len(table)
    no_worse = np.ones((count, count), dtype=bool)  # [i, j]: i is nowhere worse than j
    better = np.zeros((count, count), dtype=bool)
    for column in table.T:
        no_worse &= column[:, None] >= column[None, :]
        better |= column[:, None] > column[None, :]
    dominates = no_worse & better
    found = np.full(count, -1, dtype=np.int64)
    layer = 0
    while (found < 0).any():
        left = found < 0
        found[left & ~dominates[left].any(axis=0)] = layer
        layer += 1
    return found


def crowding(values: ArrayLike) -> Array:
    """Crowding distance of each point in its layer; infinite at the ends (NSGA-II).

    Sum over objectives of the distance between the two neighbours, divided by the layer's range in that objective.

    Args:
        values: Points of one layer, (n, objectives).

    Returns:
        (n,). Of equal points, only the first in the given order has a distance; the others have 0.
    """
    table = np.asarray(values, dtype=np.float64)
    unique, first = np.unique(table, axis=0, return_index=True)
    room = np.zeros(len(unique))
    for column in unique.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        span = ordered[-1] - ordered[0]
        if span > 0:
            room[order[1:-1]] += (ordered[2:] - ordered[:-2]) / span
        room[order[[0, -1]]] = np.inf
    result = np.zeros(len(table))
    result[first] = room
    return result


def select(values: ArrayLike, count: int) -> list[int]:
    """The best `count` points by non-dominated sorting and crowding distance.

    Args:
        values: (n, objectives), all larger when better.
        count: Number of points; all of them if there are fewer.

    Returns:
        Indices, best first: by layer, then by decreasing crowding distance, then in the given order.

    Examples:
        >>> select([[0, 3], [1, 2], [3, 0], [2.5, 0.4], [0, 0]], 3)
        [0, 2, 1]
    """
    table = np.asarray(values, dtype=np.float64)
    if not len(table):
        return []
    layer = layers(table)
    room = np.zeros(len(table))
    for number in np.unique(layer):
        room[layer == number] = crowding(table[layer == number])
    return [int(index) for index in np.lexsort((np.arange(len(table)), -room, layer))[:count]]


def hypervolume(
    cost: ArrayLike, quality: ArrayLike, *, one_round: float, budget: float, start: float, best: float
) -> float:
    """Share of the plane that the points dominate: log10 cost against quality, both scaled to [0, 1].

    x = log10(cost / one_round) / log10(budget / one_round) and y = (quality - start) / (best - start), clipped to
    [0, 1]; the area of the union of the rectangles [x, 1] by [0, y].

    Args:
        cost: (n,), positive.
        quality: Oriented, (n,).
        one_round: Cost at which x is 0.
        budget: Cost at which x is 1; if it equals `one_round`, x is 0 for all points.
        start: Quality at which y is 0: the untrained model, the reference.
        best: Quality at which y is 1: the best in the study; unless it is above `start`, the hypervolume is 0.

    Returns:
        0 without points, 1 for a point of the best quality after one round.

    Examples:
        >>> hypervolume([10, 100], [0.5, 1.0], one_round=1, budget=100, start=0, best=1)
        0.25
    """
    costs, qualities = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    if not len(costs) or best <= start:
        return 0.0
    span = np.log10(budget / one_round)
    x = np.clip(np.log10(np.maximum(costs, one_round) / one_round) / span, 0, 1) if span > 0 else np.zeros(len(costs))
    y = np.clip((qualities - start) / (best - start), 0, 1)
    order = np.lexsort((-y, x))
    x, y = x[order], np.maximum.accumulate(y[order])
    return float(np.dot(np.diff(np.append(x, 1.0)), y))
