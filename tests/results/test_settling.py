"""Speed against final quality."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.scale import Axis, axis_of
from driftline.results.settling import settled, settling_cost

from .made_runs import runs

LINEAR, LOG = Axis(rising=True), Axis(rising=False, floor=1e-12)
LOSSES = st.lists(st.floats(0.001, 10), min_size=1, max_size=12)


def test_a_loss_settles_on_the_logarithm() -> None:
    """From 1 to 1e-3, 5 % of the way is a factor of 1.41; linearly, 0.05 would do."""
    quality, cost = np.array([0.04, 0.0015, 0.0014, 0.001]), np.arange(1.0, 5.0)
    assert settling_cost(cost, quality, 1.0, LOG) == 3.0
    assert settling_cost(cost, -quality, -1.0, LINEAR) == 1.0


def test_a_frozen_run_settles_at_once_and_has_not_learned() -> None:
    frozen = settled(runs(0, [[0.0, 0.0]]), LINEAR)
    assert (frozen.cost.tolist(), frozen.end.tolist()) == ([1], [0])
    assert not frozen.learned(1.0)
    assert not frozen.learned(0.0)


def test_diverged_seeds_are_left_out() -> None:
    found = settled(runs(0, [[1.0, 2.0], [1.0, 0.0]], diverged=np.array([2, 1])), LINEAR)
    assert (found.cost.tolist(), found.end.tolist()) == ([2.0], [2.0])
    assert settled(runs(0, [[0.0, 0.0]], diverged=np.array([0])), LINEAR) is None


@given(LOSSES, st.floats(0.01, 100))
def test_the_unit_of_a_loss_does_not_matter(losses: list[float], unit: float) -> None:
    cost, quality = np.arange(1.0, len(losses) + 1), np.array(losses)
    exact = LOG.merit(quality)
    margin = np.abs(np.abs(exact - exact[-1]) - 0.05 * abs(exact[-1] - LOG.merit(np.array(5.0))))
    if margin.min() > 1e-9:
        assert settling_cost(cost, unit * quality, 5.0 * unit, LOG) == settling_cost(cost, quality, 5.0, LOG)


@given(LOSSES)
def test_after_settling_nothing_is_far_from_the_end(losses: list[float]) -> None:
    cost, merit = np.arange(1.0, len(losses) + 1), LOG.merit(np.array(losses))
    at = settling_cost(cost, np.array(losses), 5.0, LOG)
    within = 0.05 * abs(merit[-1] - float(LOG.merit(np.array(5.0))))
    assert (np.abs(merit[cost >= at] - merit[-1]) <= within).all()
    if at > 1:
        assert abs(merit[cost == at - 1] - merit[-1]) > within


def test_axes() -> None:
    assert not axis_of("test_accuracy", [0.1], 0.1).logarithmic
    assert axis_of("test_loss", [2.3], 0.01).logarithmic
    assert axis_of("excess_loss", [0.5], -1e-16).logarithmic  # rounding
    assert not axis_of("loss", [0.5], -0.2).logarithmic
    assert not axis_of("loss", [-1.0], -2.0).logarithmic
    assert LOG.merit(np.array([0.1, 0.0])).tolist() == pytest.approx([1.0, 12.0])
