"""The parts of the comparison with other projects that need none of them."""

import numpy as np
import pytest

from benchmarks.peer_rounds import apart, interval


@pytest.mark.parametrize(("count", "low", "high"), [(2, 0, 1), (5, 0, 4), (6, 0, 5), (8, 0, 7), (9, 1, 7), (12, 2, 9)])
def test_interval_holds_the_median_with_95_percent(count: int, low: int, high: int) -> None:
    # The ranks of any table of the sign test's interval.
    assert interval(list(range(count))[::-1]) == ((count - 1) / 2, low, high)


def test_models_apart_relative_to_the_way_of_the_first() -> None:
    first = [np.zeros((2, 2), np.float32), np.zeros(1, np.float32)]
    one = [np.ones((2, 2), np.float32), np.zeros(1, np.float32)]
    other = [np.ones((2, 2), np.float32), np.ones(1, np.float32)]
    assert apart(first, one, one) == 0
    assert apart(first, one, other) == pytest.approx(1 / 2)
