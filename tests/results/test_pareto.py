"""Non-dominated sorting and crowding: by hand, and the properties they must have."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.pareto import crowding, layers, non_dominated, select

POINT = st.tuples(st.integers(1, 30), st.integers(0, 20))  # small whole numbers: many ties
POINTS = st.lists(POINT, min_size=1, max_size=25)


def split(points: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [cost for cost, _ in points], [quality for _, quality in points]


def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[0] and a[1] >= b[1] and a != b


@given(POINTS)
def test_frontier_is_what_none_beats(points: list[tuple[int, int]]) -> None:
    on = non_dominated(*split(points))
    assert on.tolist() == [not any(beats(other, point) for other in points) for point in points]


@given(
    st.integers(1, 2).flatmap(
        lambda objectives: st.lists(st.tuples(*[st.integers(0, 6)] * objectives), min_size=1, max_size=20)
    )
)
def test_layers_peel_off_one_by_one(values: list[tuple[int, ...]]) -> None:
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
