"""Paired tests, Holm's correction, and the band under sign flips."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from driftline.results.paired_tests import band, band_limit, holm, paired, welch

DIFFERENCES = st.lists(st.floats(-5, 5), min_size=3, max_size=12).filter(lambda d: np.std(d) > 1e-3)


@given(DIFFERENCES)
def test_the_t_test_is_scipys(differences: list[float]) -> None:
    found, expected = paired(differences), stats.ttest_1samp(differences, 0.0)
    assert found.p == pytest.approx(expected.pvalue, abs=1e-12)
    low, high = expected.confidence_interval(0.95)
    assert found.interval(0.95) == pytest.approx((low, high))
    assert (low > 0 or high < 0) == (found.p < 0.05)


def test_the_detectable_difference_has_its_power() -> None:
    generator = np.random.default_rng(3)
    samples = generator.standard_normal((4000, 8))
    found = paired(samples[0].tolist())
    true = found.detectable(0.95) / found.error / np.sqrt(8)  # for a standard deviation of 1
    rejected = [(test := paired((row + true).tolist())) is not None and test.p < 0.05 for row in samples]
    assert np.mean(rejected) == pytest.approx(0.8, abs=0.05)


@given(st.integers(6, 9), st.integers(0, 10**6))
def test_the_test_by_sign_flips_is_exact_for_any_sizes(pairs: int, seed: int) -> None:
    """Of all signs of some differences, as many are below a level as there may be: no distribution is assumed."""
    sizes = np.random.default_rng(seed).standard_cauchy(pairs)
    found = [paired((np.array(signs) * sizes).tolist()) for signs in itertools.product((1.0, -1.0), repeat=pairs)]
    p_values = [test.p_signs for test in found if test is not None]
    assert len(p_values) == 2**pairs
    for level in (0.05, 0.1, 0.5):
        assert np.mean(np.array(p_values) <= level) <= level
    assert min(p_values) == 2 / 2**pairs


def test_six_pairs_must_agree() -> None:
    agree, disagree = paired([1.0, 1.1, 0.9, 1.2, 1.0, 0.01]), paired([1.0, 1.1, 0.9, 1.2, 1.0, -0.01])
    assert max(agree.p, disagree.p) < 0.05
    assert (agree.p_signs, disagree.p_signs) == (2 / 64, 4 / 64)


def test_the_signs_of_13_pairs_are_all_counted() -> None:
    """Sums as far from 0 have all signs equal, or all but one: 2 (1 + 13) of the 2^13 choices."""
    assert paired([1.0] * 12 + [-1.0]).p_signs == 28 / 2**13


def test_no_spread_is_no_evidence() -> None:
    equal = paired([0.3] * 6)
    assert (equal.p, equal.p_signs, equal.error, equal.freedom) == (1.0, 1.0, 0.0, 5)
    equal = welch([1.0] * 2, [2.0] * 3)
    assert (equal.p, equal.mean, equal.error, equal.freedom) == (1.0, -1.0, 0.0, 3)
    assert paired([0.3]) is None


@given(st.dictionaries(st.integers(0, 9), st.floats(0, 1), min_size=1, max_size=6))
def test_holm_rejects_step_by_step(p_values: dict[int, float]) -> None:
    found = holm(p_values)
    going, level = True, 0.0
    for index, key in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        left = len(p_values) - index
        if going:
            level = 1 - 0.05 / left
        going = going and p_values[key] * left <= 0.05
        assert (found[key][0] <= 0.05) == going
        assert (p_values[key] <= 1 - found[key][1] + 1e-12) == going  # the interval excludes 0
        assert found[key][1] == pytest.approx(level)


@given(st.integers(6, 8), st.integers(1, 4), st.integers(0, 10**6))
def test_the_band_excludes_0_for_at_most_5_percent_of_all_signs(pairs: int, points: int, seed: int) -> None:
    sizes = np.random.default_rng(seed).standard_normal((pairs, points))
    excluded = 0
    for signs in itertools.product((1.0, -1.0), repeat=pairs):
        found = band(np.array(signs)[:, None] * sizes)
        excluded += bool(((found[0] > 0) | (found[1] < 0)).any())
    assert excluded <= 0.05 * 2**pairs


@pytest.mark.parametrize("seed", range(6))
def test_of_labels_that_are_all_equal_at_most_5_percent_of_all_signs_name_a_range(seed: int) -> None:
    """Bands of single pairs name one more often: the limit is that of all pairs together."""
    random = np.random.default_rng(seed)
    pairs = [dict(enumerate(random.standard_normal((6, 3)))) for _ in range(3)]
    pairs.append({number + 1: row for number, row in pairs[0].items()})  # another search at its end
    named = {True: 0, False: 0}
    for signs in itertools.product((1.0, -1.0), repeat=7):
        flipped = [{key: signs[key] * row for key, row in rows.items()} for rows in pairs]
        limit = band_limit(flipped)
        for joint in named:
            bands = [band(np.array(list(rows.values())), limit if joint else None) for rows in flipped]
            named[joint] += any(found and bool(((found[0] > 0) | (found[1] < 0)).any()) for found in bands)
    assert named[True] <= 0.05 * 2**7 < named[False]


def test_the_band_finds_a_clear_difference_where_it_is() -> None:
    noise = np.random.default_rng(1).standard_normal((8, 3)) * 0.1
    found = band(noise + np.array([0.0, 1.0, -1.0]))
    assert [(low > 0, high < 0) for low, high in zip(*found, strict=True)] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert band(noise[:5]) is None


def test_many_pairs_are_flipped_at_random_but_reproducibly() -> None:
    table = np.random.default_rng(2).standard_normal((20, 5))
    first, second = band(table), band(table)
    assert first is not None
    np.testing.assert_array_equal(first, second)
