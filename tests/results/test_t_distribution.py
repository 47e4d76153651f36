"""Student's t distribution, against SciPy's."""

import math

import pytest
from scipy.special import stdtr, stdtrit

from driftline.results.t_distribution import density, quantile, two_sided

FREEDOM = [0.3, 1, 1.5, 2, 5, 7.3, 29, 100, 199.9, 400.1, 1e5]


@pytest.mark.parametrize("freedom", FREEDOM)
def test_tails_and_quantiles_are_scipys(freedom: float) -> None:
    for t in (1e-3, 0.1, 0.5, 1.0, 1.3, 2.0, 3.0, 8.0, 20.0, 1e4):
        assert two_sided(t, freedom) == two_sided(-t, freedom)
        assert two_sided(t, freedom) == pytest.approx(2 * stdtr(freedom, -t), rel=1e-10, abs=1e-280)
    for probability in (0.05, 0.2, 0.5, 0.6, 0.8, 0.975, 0.9999):
        assert quantile(probability, freedom) == pytest.approx(stdtrit(freedom, probability), rel=1e-9, abs=1e-12)


def test_the_density_is_the_slope_of_the_distribution() -> None:
    slope = (two_sided(1.3 - 1e-5, 4.5) - two_sided(1.3 + 1e-5, 4.5)) / 4e-5
    assert density(1.3, 4.5) == pytest.approx(slope, rel=1e-8)


def test_ends() -> None:
    assert (two_sided(0.0, 3.0), two_sided(math.inf, 3.0)) == (1.0, 0.0)
    assert two_sided(1.96, math.inf) == pytest.approx(math.erfc(1.96 / math.sqrt(2)))
    assert two_sided(1.96, 1e9) == pytest.approx(two_sided(1.96, 1e7), rel=1e-6)
    assert quantile(0.975, math.inf) == pytest.approx(1.959963984540054)
