"""Recommendations, against the definition written out with loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.cross_fitting import band, cross_fitted, found_by_search
from driftline.results.recommendation import UNTRAINED, Span, Steps, follow, recommend
from driftline.results.runs import Runs
from driftline.results.scale import Axis, Scale

from .made_runs import runs, several

AXIS = Axis(rising=True)
SPAN = Span(1.0, 12.0)


def by_definition(found: list[Runs], seeds: list[int], costs: list[float]) -> list[tuple[int, int]]:
    """(configuration, index of its stopping round) at each cost, by the words of the definition."""
    chosen = []
    for cost in costs:
        paid = [
            (-np.mean([one.quality[s, j] for s in seeds]).round(9), one.rounds[j], number, j)
            for number, one in enumerate(found)
            for j in range(one.limit(seeds))
            if np.mean([one.cost[s, j] for s in seeds]) <= cost
        ]
        chosen.append(min(paid)[2:] if paid else (UNTRAINED, 0))
    return chosen


@given(several(), st.data())
def test_recommendations_follow_their_definition(found: list[Runs], data: st.DataObject) -> None:
    seeds = data.draw(st.lists(st.sampled_from(range(found[0].seeds)), min_size=1, unique=True))
    chosen = recommend(found, seeds, AXIS, SPAN)
    costs = sorted({1.0, *(float(c) for one in found for c in one.cost[0, : one.limit(seeds)] if 1 <= c <= 12)})
    expected = by_definition(found, seeds, costs)
    at = np.searchsorted(chosen.cost, costs, side="right") - 1
    assert [(int(chosen.which[i]), int(chosen.column[i])) for i in at] == expected
    assert chosen.cost[0] == SPAN.first
    assert (np.diff(chosen.cost) > 0).all()


def test_equal_means_stop_earlier_then_take_the_lower_number() -> None:
    """Accuracies of 360 images, whose sums differ in the last digit, and a configuration with dearer, fewer rounds."""
    first = runs(0, [[200 / 360, 201 / 360], [203 / 360, 202 / 360], [205 / 360, 205 / 360]])
    same = runs(1, [[205 / 360, 0.0], [201 / 360, 0.0], [202 / 360, 0.0]])
    assert recommend([first, same], [0, 1, 2], AXIS, SPAN).which.tolist() == [0]
    late = runs(0, [[0.1, 0.5]])
    dear = runs(1, [[0.5]], cost=[4.0])
    chosen = recommend([late, dear], [0], AXIS, SPAN)
    assert (chosen.cost.tolist(), chosen.which.tolist(), chosen.column.tolist()) == (
        [1.0, 2.0, 4.0], [0, 0, 1], [0, 1, 0],
    )  # fmt: skip


def test_a_configuration_that_diverged_on_a_choosing_seed_is_left_there() -> None:
    wild = runs(0, [[2.0, 3.0, 0.0], [2.0, 3.0, 4.0]], diverged=np.array([2, 3]))
    tame = runs(1, [[1.0, 1.0, 1.0]] * 2)
    both, one = recommend([wild, tame], [0, 1], AXIS, SPAN), recommend([wild, tame], [1], AXIS, SPAN)
    assert (both.column[-1], one.column[-1]) == (1, 2)
    assert follow(one, [wild, tame], 0, 0.0).quality.tolist() == [2.0, 3.0, 0.0]


@given(several(seeds=3))
def test_no_seed_is_reported_on_what_it_chose(found: list[Runs]) -> None:
    """Other values on a seed change what is reported there only through these values themselves."""
    before = cross_fitted(found, AXIS, SPAN)
    for seed in range(3):
        marks = [one.quality.copy() for one in found]
        for number, table in enumerate(marks):
            table[seed] = 100 * (number + 1) + np.arange(table.shape[1])
        changed = [Runs(**{**vars(one), "quality": table}) for one, table in zip(found, marks, strict=True)]
        after = cross_fitted(changed, AXIS, SPAN)[seed]
        others = [other for other in range(3) if other != seed]
        chosen = recommend(found, others, AXIS, SPAN)
        read = [
            0.0 if w == UNTRAINED else 100.0 * (w + 1) + c for w, c in zip(chosen.which, chosen.column, strict=True)
        ]
        assert after.quality.tolist() == read
        assert after.cost.tolist() == before[seed].cost.tolist()


@given(several(seeds=1), st.integers(2, 4))
def test_equal_seeds_report_what_they_chose(found: list[Runs], count: int) -> None:
    repeated = [
        Runs(
            one.configuration,
            one.rounds,
            *(np.repeat(table, count, axis=0) for table in (one.cost, one.quality, one.start, one.diverged)),
        )
        for one in found
    ]
    (alone,) = found_by_search(found, found, AXIS, SPAN)
    for steps in cross_fitted(repeated, AXIS, SPAN):
        assert (steps.cost.tolist(), steps.quality.tolist()) == (alone.cost.tolist(), alone.quality.tolist())


def test_the_search_chooses_rounds_not_columns() -> None:
    """Confirmation trials may have been evaluated after other rounds."""
    search = runs(0, [[1.0, 5.0, 2.0]], cost=[2.0, 4.0, 6.0], rounds=np.array([2.0, 4.0, 6.0]))
    fresh = runs(0, [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5] * 6])
    steps = found_by_search([fresh], [search], AXIS, SPAN)
    assert [each.cost.tolist() for each in steps] == [[1.0, 2.0, 4.0]] * 2
    assert [each.quality.tolist() for each in steps] == [[0.0, 2.0, 4.0], [0.0, 0.5, 0.5]]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_band_holds_its_median(values: list[list[int]]) -> None:
    steps = [Steps(np.arange(1.0, len(row) + 1), np.array(row, dtype=float)) for row in values]
    found = band(steps)
    assert (found.low <= found.middle).all()
    assert (found.middle <= found.high).all()
    for cost in np.arange(1.0, 7.0):
        here = np.searchsorted(found.cost, cost, side="right") - 1
        assert found.middle[here] == np.median([each.at(np.array([cost])) for each in steps])


def test_area_by_hand() -> None:
    steps = Steps(np.array([1.0, 10.0]), np.array([0.5, 1.0]))
    assert steps.area(Scale(AXIS, 0.0, 1.0), Span(1.0, 100.0)) == pytest.approx(0.75)
    assert steps.area(Scale(AXIS, 0.5, 1.5), Span(1.0, 100.0)) == pytest.approx(0.25)
    assert steps.area(Scale(AXIS, 0.0, 0.0), Span(1.0, 100.0)) == 0.0
    assert Steps(np.array([3.0]), np.array([0.5])).area(Scale(AXIS, 0.0, 1.0), Span(3.0, 3.0)) == 0.5
    loss = Steps(np.array([1.0, 10.0]), np.array([1.0, 0.01]))
    assert loss.area(Scale(Axis(False, 1e-12), 1.0, 0.01), Span(1.0, 100.0)) == pytest.approx(0.5)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=6), st.floats(0.1, 10), st.floats(0.1, 1000))
def test_areas_have_no_unit(values: list[float], factor: float, unit: float) -> None:
    cost = np.arange(1.0, len(values) + 1)
    steps = Steps(cost, np.array(values))
    moved = Steps(unit * cost, factor * np.array(values))
    for axis in (AXIS, Axis(False, 1e-12)):
        area = steps.area(Scale(axis, 10.0, 0.01), Span(1.0, 20.0))
        assert moved.area(Scale(axis, 10.0 * factor, 0.01 * factor), Span(unit, 20.0 * unit)) == pytest.approx(area)
