"""Means over all subsets of trials, against a list of all subsets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.search_effort import Side, effort_test, expected, shares


def listed(side, trials, without=None):
    """The mean over a list of all subsets."""
    numbers = [number for number in range(len(side.merit)) if number != without]
    rows = []
    for subset in itertools.combinations(numbers, trials):
        best = np.array(subset)[np.argmax(side.merit[list(subset)], axis=0)]
        rows.append(side.value[best, np.arange(side.value.shape[1])])
    return np.mean(rows, axis=0)


@given(count=st.integers(3, 8), trials=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_the_mean_is_that_over_all_subsets(count, trials, seed):
    trials = min(trials, count - 1)
    generator = np.random.default_rng(seed)
    sides = [Side(*generator.normal(size=(2, count, 4))) for _ in range(2)]
    mean = expected(sides, trials)
    np.testing.assert_allclose(mean.value, np.mean([listed(side, trials) for side in sides], axis=0), rtol=1e-12)
    for number in range(count):
        without = np.mean([listed(side, trials, number) for side in sides], axis=0)
        np.testing.assert_allclose(mean.value + mean.influence[number], without, rtol=1e-10, atol=1e-12)


def test_one_trial_gives_the_plain_mean_and_its_standard_error():
    generator = np.random.default_rng(0)
    value = generator.normal(size=(30, 1))
    mean = expected([Side(generator.normal(size=(30, 1)), value)], 1)
    test = effort_test(float(mean.value[0]), mean.influence[:, 0], np.arange(30), 1)
    assert test.mean == pytest.approx(value.mean())
    assert test.error == pytest.approx(value.std(ddof=1) / np.sqrt(30))


def test_what_configurations_of_a_search_have_in_common_counts():
    search = np.arange(24) % 6
    value = np.random.default_rng(0).normal(size=6)[search][:, None]
    mean = expected([Side(value, value)], 1)
    test = effort_test(float(mean.value[0]), mean.influence[:, 0], search, 1)
    assert test.error == pytest.approx(value[:6].std(ddof=1) / np.sqrt(6))
    assert test.freedom == 10


@pytest.mark.parametrize(("count", "trials"), [(1, 1), (5, 5), (96, 8), (1000, 500)])
def test_shares_add_up_to_one(count, trials):
    assert shares(count, trials).sum() == pytest.approx(1)
