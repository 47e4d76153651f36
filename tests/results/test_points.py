"""Smoothing, tail, settling and what counts, with numbers by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.results import objectives
from driftline.results.points import progress, smooth, window

from .samples import curve

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(("rounds", "width"), [(1, 1), (19, 1), (40, 2), (50, 2), (200, 10), (2000, 100), (10**6, 100)])
def test_window_is_a_twentieth_between_1_and_100(rounds: int, width: int) -> None:
    assert window(rounds) == width


def test_smoothing_by_hand() -> None:
    rounds = np.array([0.0, 1.0, 2.0, 3.0])
    assert smooth(rounds, np.array([1.0, 2.0, 3.0, 7.0]), 3).tolist() == [1.0, 1.5, 2.0, 4.0]


def test_smoothing_windows_are_in_rounds_not_in_evaluations() -> None:
    rounds = np.array([0.0, 10.0, 20.0, 21.0, 22.0])
    values = np.array([1.0, 2.0, 3.0, 5.0, 7.0])
    assert smooth(rounds, values, 10).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]  # 10 rounds back is outside
    assert smooth(rounds, values, 11).tolist() == [1.0, 1.5, 2.5, 4.0, 5.0]


def test_smoothing_keeps_small_numbers_after_large_ones() -> None:
    values = np.array([1e12, 1e-9, 2e-9, 3e-9])
    assert smooth(np.arange(4.0), values, 2)[3] == pytest.approx(2.5e-9, rel=1e-12)


@given(st.lists(FINITE, min_size=1, max_size=30), st.integers(1, 8), FINITE)
def test_smoothing_is_a_mean(values: list[float], width: int, shift: float) -> None:
    array = np.array(values)
    rounds = np.arange(len(values), dtype=float)
    smoothed = smooth(rounds, array, width)
    assert (smoothed >= array.min() - 1e-6).all()
    assert (smoothed <= array.max() + 1e-6).all()
    np.testing.assert_allclose(smooth(rounds, array + shift, width), smoothed + shift, atol=1e-6)
    np.testing.assert_array_equal(smooth(rounds, -array, width), -smoothed)
    np.testing.assert_array_equal(smooth(rounds, array, 1), array)


def test_settles_where_it_stays_within_five_percent_of_its_way() -> None:
    found = progress(curve([0.0, 0.5, 0.96, 0.90, 0.951, 1.0]), "test_accuracy", "rounds", 10)
    assert found is not None
    assert (found.tail, found.settles) == (1.0, 4.0)  # 0.96 is near, but it leaves again


def test_falling_metrics_are_the_same_upside_down() -> None:
    values = np.array([0.0, 0.5, 0.96, 0.90, 0.95, 1.0])
    rising = progress(curve(values), "test_accuracy", "rounds", 10)
    falling = progress(curve(-values, metric="test_loss"), "test_loss", "rounds", 10)
    assert rising is not None
    assert falling is not None
    assert falling.quality.tolist() == rising.quality.tolist()
    assert falling.settles == rising.settles


def test_costs_are_counted_at_the_evaluations() -> None:
    sparse = curve([0.1, np.nan, 0.5, np.nan, 0.9], gradients=30)
    for cost, expected in {"rounds": [0, 2, 4], "client_gradients": [0, 60, 120], "bytes": [0, 1600, 3200]}.items():
        found = progress(sparse, "test_accuracy", cost, 10)
        assert found is not None
        assert found.cost.tolist() == expected


def test_a_cost_that_is_missing_in_a_round_is_that_of_the_round_before() -> None:
    gaps = curve([0.1, 0.2, 0.3], wall_seconds=[0.0, np.nan, 2.0])
    found = progress(gaps, "test_accuracy", "seconds", 10)
    assert found is not None
    assert found.cost.tolist() == [0.0, 0.0, 2.0]


def test_a_frozen_model_counts_for_nothing() -> None:
    frozen = progress(curve([0.1] * 5), "test_accuracy", "rounds", 10)
    assert frozen is not None
    assert frozen.settles == 0.0
    assert not frozen.counts(best=0.9)
    assert not frozen.counts(best=0.1)
    half = progress(curve([0.1, 0.5]), "test_accuracy", "rounds", 10)
    assert half is not None
    assert half.counts(best=0.9)
    assert not half.counts(best=0.91)


def test_speed_is_the_mean_over_the_logarithm_of_the_cost() -> None:
    trial = curve([0.0, 0.4, 1.0], rounds=[0, 1, 10])
    # from round 1 to 10 the quality is 0.4 (the evaluation at 10 only ends the decade)
    assert objectives.speed(trial, "test_accuracy", "rounds", 10) == pytest.approx(0.4)
    later = curve([0.0, 0.4, 1.0, 1.0], rounds=[0, 1, 10, 100])
    assert objectives.speed(later, "test_accuracy", "rounds", 10) == pytest.approx(0.7)


def test_speed_of_a_frozen_trial_is_where_it_began() -> None:
    assert objectives.speed(curve([0.3] * 20), "test_accuracy", "rounds", 20) == pytest.approx(0.3)
    assert objectives.speed(curve([0.3]), "test_accuracy", "rounds", 20) == 0.3


def test_of_equal_curves_the_one_with_cheaper_rounds_is_faster() -> None:
    values = 1 - np.exp(-np.arange(30) / 4)
    cheap, dear = curve(values, gradients=10), curve(values, gradients=500)
    assert objectives.speed(cheap, "test_accuracy", "client_gradients", 29) > objectives.speed(
        dear, "test_accuracy", "client_gradients", 29
    )
    assert objectives.speed(cheap, "test_accuracy", "rounds", 29) == objectives.speed(
        dear, "test_accuracy", "rounds", 29
    )


def test_values_are_larger_when_better_also_for_a_loss() -> None:
    good, bad = (curve(2.0 * rate ** np.arange(20), metric="test_loss") for rate in (0.5, 0.9))
    left, right = (objectives.values(trial, "test_loss", "rounds", 19) for trial in (good, bad))
    assert left["quality"] > right["quality"]
    assert left["speed"] > right["speed"]
    assert left["quality"] == pytest.approx(-2.0 * 0.5**19)


def test_a_metric_that_was_not_reported_is_named() -> None:
    with pytest.raises(InvalidSpec, match=r'got "test_acuracy" \(reported: bytes_down, .*test_accuracy\)'):
        objectives.quality(curve([0.1, 0.2]), "test_acuracy", 10)
    with pytest.raises(
        InvalidSpec, match='must be one of rounds, bytes, client_gradients, seconds, got "byte"; did you mean bytes'
    ):
        objectives.speed(curve([0.1, 0.2]), "test_accuracy", "byte", 10)
    with pytest.raises(InvalidSpec, match="must report wall_seconds for cost=seconds; choose cost=rounds"):
        objectives.speed(curve([0.1, 0.2]), "test_accuracy", "seconds", 10)
