"""The cost of reaching a quality."""

import pytest

from driftline.results.runs import axis_of_runs, runs_of
from driftline.results.scale import Axis
from driftline.results.targets import costs_to_targets, targets

from .samples import curve

LOSS = [2.5, 1.5, 0.9, 0.9, 0.25, 0.25]


def costs(quality: str, values: list[float], state: str = "COMPLETE") -> dict[float, float]:
    runs = runs_of(0, [curve(values, metric=quality, state=state)], quality, "rounds")
    return costs_to_targets(runs, axis_of_runs(quality, [runs]))


def test_the_first_cost_at_which_the_smoothed_quality_is_there() -> None:
    reached = costs("test_loss", LOSS)
    runs = runs_of(0, [curve(LOSS, metric="test_loss")], "test_loss", "rounds")
    assert reached == {
        target: float(runs.cost[0][runs.quality[0] <= target][0])
        for target in (2.0, 1.0, 0.5, 0.2)
        if (runs.quality[0] <= target).any()
    }
    assert len(reached) >= 2


def test_a_quality_that_is_lost_again_was_reached() -> None:
    rising = costs("test_accuracy", [0.1, 0.1, 0.95, 0.95, 0.95, 0.95])
    falling = costs("test_accuracy", [0.1, 0.1, 0.95, 0.95, 0.95, 0.95, 0.1, 0.1, 0.1, 0.1])
    assert 0.5 in falling
    assert falling[0.5] == rising[0.5]


@pytest.mark.parametrize(
    ("start", "axis", "expected"),
    [
        (0.1, Axis(rising=True), [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]),
        (12.0, Axis(rising=True), []),  # not a share
        (2.0, Axis(rising=False), []),  # a loss that may be negative
        (5.0, Axis(rising=False, floor=1e-12), [2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005]),
    ],
)
def test_targets_are_round_numbers_between_the_start_and_four_decades_better(
    start: float, axis: Axis, expected: list[float]
) -> None:
    assert targets(start, axis) == pytest.approx(expected)


def test_targets_that_are_missed_have_no_cost() -> None:
    assert costs("test_loss", [2.5, 2.4, 2.4, 2.4]) == {}
