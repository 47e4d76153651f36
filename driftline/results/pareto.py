"""Pareto sets: non-dominated sorting and crowding distance."""

from __future__ import annotations

from bisect import bisect_right

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

    Takes O(n log n): in decreasing order of the first objective, a point is in the first layer whose largest second
    objective so far is smaller than its own.

    Args:
        values: (n, objectives), all larger when better; one objective or two.

    Returns:
        The layer of each point, (n,).

    Examples:
        >>> layers([[1, 1], [2, 0], [0, 0], [2, 2]]).tolist()
        [1, 1, 2, 0]
    """
    table = np.asarray(values, dtype=np.float64)
    if table.shape[-1] == 1:
        table = np.column_stack([table, table])
    result = np.zeros(len(table), dtype=np.int64)
    lowest: list[float] = []  # of each layer, minus its largest second objective; increasing
    last, layer = (np.nan, np.nan), 0
    for index in np.lexsort((-table[:, 1], -table[:, 0])):
        point = (table[index, 0], table[index, 1])
        if point != last:  # equal points do not dominate each other
            layer = bisect_right(lowest, -point[1])
            lowest[layer : layer + 1] = [-point[1]]
        result[index], last = layer, point
    return result


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
