"""Smoothed quality: the mean over the evaluations of the last max(1, t / 10) rounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.curves import smooth
from driftline.results.document import frontier_document

from .samples import Chosen, curve

CURVES = st.lists(
    st.tuples(st.integers(0, 300), st.floats(-1e6, 1e6)), min_size=1, max_size=40, unique_by=lambda p: p[0]
)


def arrays(curve: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    rounds, values = zip(*sorted(curve), strict=True)
    return np.array(rounds, dtype=float), np.array(values)


def test_rows_are_smoothed_as_each_alone() -> None:
    rounds, rows = np.arange(500.0), np.random.default_rng(0).lognormal(size=(3, 500))
    assert smooth(rounds, rows).tobytes() == b"".join(smooth(rounds, row).tobytes() for row in rows)


def test_a_window_counts_rounds_not_evaluations() -> None:
    rounds, values = np.array([0.0, 80.0, 90.0, 91.0, 100.0]), np.array([9.0, 8.0, 5.0, 3.0, 1.0])
    assert smooth(rounds, values).tolist() == [9.0, 8.0, 5.0, 4.0, 2.0]  # round 90 is outside at 100


@given(CURVES)
def test_it_is_the_mean_of_its_window(curve: list[tuple[int, float]]) -> None:
    rounds, values = arrays(curve)
    for at, mean in zip(rounds, smooth(rounds, values), strict=True):
        inside = [value for when, value in zip(rounds, values, strict=True) if at - max(1, at / 10) < when <= at]
        assert mean == pytest.approx(np.mean(inside), rel=1e-9, abs=1e-6)


@given(CURVES, st.integers(1, 40))
def test_later_evaluations_change_nothing(curve: list[tuple[int, float]], count: int) -> None:
    rounds, values = arrays(curve)
    np.testing.assert_array_equal(smooth(rounds[:count], values[:count]), smooth(rounds, values)[:count])


def test_small_numbers_after_large_ones_keep_their_digits() -> None:
    values = np.array([1e12, 1e-9, 2e-9, 4e-9])
    assert smooth(np.array([0.0, 30.0, 31.0, 32.0]), values)[3] == pytest.approx(7e-9 / 3, rel=1e-12)


def test_values_beyond_the_largest_are_as_infinite() -> None:
    """Else their sums are infinite, which no answer of the API and no stored value may be."""
    huge = [
        curve([value, 2.0, value, value, 1.0], metric="test_loss", number=n) for n, value in enumerate((1e308, -1e101))
    ]
    finite = [curve([np.nan, 2.0, np.nan, np.nan, 1.0], metric="test_loss", number=n) for n in range(2)]
    assert [one.smoothed("test_loss")[1].tolist() for one in huge] == [[2.0, 1.0]] * 2
    chosen = Chosen(quality="test_loss")
    found, expected = (frontier_document("s", curves, chosen, 4)["methods"] for curves in (huge, finite))
    assert found == expected
    never = curve([1e308] * 5, metric="test_loss")
    assert not never.reports("test_loss")
    assert curve([1e100] * 5, metric="test_loss").smoothed("test_loss")[2].tolist() == [1e100] * 5
