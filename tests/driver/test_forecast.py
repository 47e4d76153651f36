"""Forecasts of curves: limits that are found, uncertainty, and curves of every kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.results.curves import TrialCurve
from driftline.study.spec import Objective
from service.driver.search.forecast import Prospect, forecast, prospect

ROUNDS = 100
LOSS = Objective(quality="test_loss")


def curve(values, rates=None, metric="test_loss"):
    rounds = np.arange(len(values), dtype=np.float64)
    columns = {"round": rounds, metric: np.asarray(values, dtype=np.float64), "client_gradients": 5 * rounds}
    if rates is not None:
        columns["client_lr"] = np.asarray(rates, dtype=np.float64)
    return TrialCurve("a", "a", "search", 0, 0, 0, {}, "STOPPED", columns)


def decaying(limit, amplitude, constant, until, noise=0.0):
    """A curve of merits, 10^-merit of which are losses."""
    rounds = np.arange(until + 1.0)
    jitter = noise * np.random.default_rng(0).standard_normal(len(rounds))
    return limit - amplitude * np.exp(-rounds / constant) + jitter


@pytest.mark.parametrize("constant", [3.0, 10.0, 40.0])
def test_the_limit_of_an_exponential_is_found_within_its_uncertainty(constant):
    merits = decaying(0.8, 1.0, constant, 33, noise=0.01)
    mean, spread = forecast(np.arange(34.0), merits, np.array([float(ROUNDS)]), ROUNDS)
    truth = 0.8 - np.exp(-ROUNDS / constant)
    assert abs(mean[0] - truth) < 3 * spread[0] < 0.6
    assert abs(mean[0] - truth) < abs(merits[-1] - truth) + 0.02, "no worse than the last value"


def test_a_curve_that_still_rises_is_expected_to_rise_and_a_flat_one_to_stay():
    later = np.array([float(ROUNDS)])
    rising, _ = forecast(np.arange(12.0), decaying(1.0, 1.0, 30.0, 11), later, ROUNDS)
    flat, spread = forecast(np.arange(12.0), np.full(12, 0.3), later, ROUNDS)
    assert rising[0] > 1 - np.exp(-11 / 30) + 0.2
    assert abs(flat[0] - 0.3) < 0.05
    assert 0 < spread[0] < 0.3


def test_uncertainty_grows_with_distance_and_shrinks_with_evaluations():
    merits = decaying(0.8, 1.0, 20.0, 40, noise=0.02)
    _, spread = forecast(np.arange(12.0), merits[:12], np.array([20.0, 50.0, 100.0]), ROUNDS)
    _, later = forecast(np.arange(41.0), merits, np.array([100.0]), ROUNDS)
    assert spread[0] < spread[1] < spread[2]
    assert later[0] < spread[2]


@settings(deadline=None)
@given(
    st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=40),
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40),
    st.booleans(),
)
def test_every_curve_has_a_finite_prospect_that_never_falls_below_what_it_reached(positive, any_values, rises):
    """Short, flat, noisy, rising, exploding: nothing is a special case, and the same curve has the same prospect."""
    values, objective = (any_values, Objective(quality="test_accuracy")) if rises else (positive, LOSS)
    one = curve(values, metric=objective.quality)
    view = prospect(one, objective, ROUNDS)
    assert view == prospect(curve(values, metric=objective.quality), objective, ROUNDS)
    table = np.array([view.costs, view.merits, view.spreads])
    assert np.isfinite(table).all()
    assert (np.diff(table[0]) >= 0).all()
    assert table[0][-1] == ROUNDS
    reached = table[0] <= len(values) - 1
    assert not table[2][reached].any()
    assert (table[2] >= 0).all()
    if reached.any():
        assert (table[1][~reached] >= table[1][reached][-1]).all()
        assert (np.diff(table[1][reached]) >= 0).all()


def test_a_cut_of_a_rate_begins_another_curve():
    """The loss stays at a floor of noise until the rate is cut; then it falls to a lower one."""
    before, after = np.full(20, 0.5), 0.5 * 10 ** -decaying(1.0, 1.0, 6.0, 12)
    values = np.append(before, after)
    rates = np.append(np.full(20, 0.1), np.full(len(after), 0.01))
    known, unknown = prospect(curve(values, rates), LOSS, ROUNDS), prospect(curve(values), LOSS, ROUNDS)
    truth = -np.log10(0.05)
    assert abs(known.merits[-1] - truth) < abs(unknown.merits[-1] - truth)
    alone = prospect(curve(np.append(np.full(20, 77.0), after), rates), LOSS, ROUNDS)
    assert alone.merits[-1] == known.merits[-1], "what came before is left out"


def test_a_slow_fall_of_a_rate_is_no_cut():
    values = 10 ** -decaying(0.8, 1.0, 20.0, 30)
    cosine = 0.05 * (1 + np.cos(np.pi * np.arange(31) / ROUNDS))
    assert prospect(curve(values, cosine), LOSS, ROUNDS) == prospect(curve(values), LOSS, ROUNDS)


def test_costs_grow_as_they_did_and_negative_losses_are_linear():
    view = prospect(curve(np.linspace(1.0, -1.0, 11)), Objective(quality="test_loss", cost="client_gradients"), ROUNDS)
    assert not view.logarithmic
    assert view.costs[-1] == 5 * ROUNDS
    positive = Prospect((1.0, 2.0), (1.0, 2.0), (0.0, 0.1), 0.0, logarithmic=True).linear()
    assert positive.merits == pytest.approx((-0.1, -0.01))
    assert positive.spreads == pytest.approx((0.0, 0.01 * np.log(10) * 0.1))
    assert positive.linear() is positive
