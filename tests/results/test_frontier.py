"""Non-dominated sorting, crowding and hypervolume: by hand, and the properties they must have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.frontier import band, best_within
from driftline.results.pareto import crowding, hypervolume, layers, non_dominated, select
from driftline.results.points import SmoothedCurve

POINT = st.tuples(st.integers(1, 30), st.integers(0, 20))  # small whole numbers: many ties
POINTS = st.lists(POINT, min_size=1, max_size=25)
SCALE = {"one_round": 1.0, "budget": 100.0, "start": 0.0, "best": 20.0}


def split(points: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [cost for cost, _ in points], [quality for _, quality in points]


def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[0] and a[1] >= b[1] and a != b


@given(POINTS)
def test_frontier_is_what_none_beats(points: list[tuple[int, int]]) -> None:
    on = non_dominated(*split(points))
    assert on.tolist() == [not any(beats(other, point) for other in points) for point in points]


@given(POINTS, st.randoms())
def test_order_does_not_matter(points: list[tuple[int, int]], random: object) -> None:
    order = list(range(len(points)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = [points[index] for index in order]
    assert non_dominated(*split(shuffled)).tolist() == non_dominated(*split(points))[order].tolist()
    assert hypervolume(*split(shuffled), **SCALE) == pytest.approx(hypervolume(*split(points), **SCALE), abs=1e-12)


@given(POINTS, POINT)
def test_a_dominated_point_changes_nothing(points: list[tuple[int, int]], more: tuple[int, int]) -> None:
    before, volume = non_dominated(*split(points)), hypervolume(*split(points), **SCALE)
    after = non_dominated(*split([*points, more]))
    if any(beats(point, more) for point in points):
        assert after.tolist() == [*before.tolist(), False]
        assert hypervolume(*split([*points, more]), **SCALE) == pytest.approx(volume, abs=1e-12)
    assert hypervolume(*split([*points, more]), **SCALE) >= volume - 1e-12


@given(POINTS)
def test_hypervolume_is_a_share_and_only_the_frontier_has_it(points: list[tuple[int, int]]) -> None:
    volume = hypervolume(*split(points), **SCALE)
    assert 0 <= volume <= 1
    on = non_dominated(*split(points))
    kept = [point for point, there in zip(points, on, strict=True) if there]
    assert hypervolume(*split(kept), **SCALE) == pytest.approx(volume, abs=1e-12)


@given(POINTS, st.floats(0.01, 100), st.floats(-50, 50), st.floats(0.01, 1000))
def test_hypervolume_has_no_unit(points: list[tuple[int, int]], factor: float, shift: float, unit: float) -> None:
    costs, qualities = (np.array(side, dtype=float) for side in split(points))
    moved = hypervolume(
        unit * costs,
        factor * qualities + shift,
        one_round=unit,
        budget=100 * unit,
        start=shift,
        best=20 * factor + shift,
    )
    assert moved == pytest.approx(hypervolume(costs, qualities, **SCALE), abs=1e-6)


def test_hypervolume_by_hand() -> None:
    assert hypervolume([1], [20], **SCALE) == 1.0
    assert hypervolume([100], [20], **SCALE) == 0.0  # settles with the last round: no room is left
    assert hypervolume([10], [20], **SCALE) == 0.5
    assert hypervolume([10, 1], [20, 10], **SCALE) == 0.75
    assert hypervolume([], [], **SCALE) == 0.0
    assert hypervolume([1], [5], one_round=1, budget=1, start=0, best=10) == 0.5
    assert hypervolume([1], [5], one_round=1, budget=10, start=5, best=5) == 0.0
    assert hypervolume([0.1], [30], **SCALE) == 1.0  # beyond the scale counts as its end


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=20))
def test_layers_peel_off_one_by_one(values: list[tuple[int, int, int]]) -> None:
    found = layers(values)

    def over(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return a != b and all(x >= y for x, y in zip(a, b, strict=True))

    for index, value in enumerate(values):
        above = [found[other] for other, rival in enumerate(values) if over(rival, value)]
        assert found[index] == max(above, default=-1) + 1


def test_crowding_by_hand() -> None:
    room = crowding([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]])
    assert room.tolist() == [np.inf, 3 / 4 + 3 / 4, 3 / 4 + 3 / 4, np.inf]
    assert crowding([[1.0, 1.0]] * 3).tolist() == [np.inf, 0.0, 0.0]


def test_selection_fills_up_from_the_next_layers() -> None:
    values = [[0, 10], [10, 0], [5, 5], [1, 8.9], [0, 1], [1, 0]]
    assert select(values, 3)[:2] == [0, 1]
    assert select(values, 3)[2] in (2, 3)
    assert sorted(select(values, 6)) == [0, 1, 2, 3, 4, 5]
    assert set(select(values, 5)) - {0, 1, 2, 3} <= {4, 5}
    assert select([], 4) == []
    assert len(select(values, 100)) == 6


TRIAL = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-5, 20)), min_size=1, max_size=12, unique_by=lambda pair: pair[0]
)


def trial(pairs: list[tuple[int, int]]) -> SmoothedCurve:
    ordered = sorted(pairs)
    cost, quality = (np.array(side, dtype=float) for side in zip(*ordered, strict=True))
    return SmoothedCurve(cost, quality, float(quality[0]))


@given(st.lists(TRIAL, max_size=5), st.integers(-5, 5))
def test_the_frontier_never_falls_and_is_the_best_within_a_cost(
    trials: list[list[tuple[int, int]]], start: int
) -> None:
    found = best_within([trial(pairs) for pairs in trials], float(start))
    costs = np.arange(0.0, 45.0)
    values = found.at(costs)
    assert (np.diff(values) >= 0).all()
    for cost, value in zip(costs, values, strict=True):
        assert value == max([start, *(q for pairs in trials for c, q in pairs if c <= cost)])


@given(st.lists(TRIAL, min_size=1, max_size=4))
def test_band_holds_the_median(trials: list[list[tuple[int, int]]]) -> None:
    steps = [best_within([trial(pairs)], -5.0) for pairs in trials]
    found = band(steps, 1.0, 40.0)
    assert (found.worst <= found.middle).all()
    assert (found.middle <= found.best).all()
    assert (np.diff(found.cost) > 0).all()
    assert (found.cost[0], found.cost[-1]) == (1.0, 40.0)
    for row in (found.worst, found.middle, found.best):
        assert (np.diff(row) >= 0).all()
    costs = np.arange(1.0, 41.0)
    shown = found.middle[np.searchsorted(found.cost, costs, side="right") - 1]
    np.testing.assert_array_equal(shown, np.median([step.at(costs) for step in steps], axis=0))
