"""The distortion of one eigenvalue, against plain sums and against mpmath where doubles would fail."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.theory.interval import Curvature, log_condition_number, log_distortion_ratio
from trainers.theory.spectrum import distortion, log_distortion, log_one_minus_exp, phi, psi
from trainers.theory.weights import all_steps, last_step, listed

DIGITS = 700


def exact_phi(eigenvalue, client_lr, steps, prox=0.0):
    with mpmath.workdps(DIGITS):
        e, c, p = (mpmath.mpf(value) for value in (eigenvalue, client_lr, prox))
        if c == 0:
            return steps * e
        return e / (e + p) * (1 - (1 - c * (e + p)) ** steps) / c


def exact_psi(eigenvalue, client_lr, steps, prox=0.0):
    with mpmath.workdps(DIGITS):
        e, c, p = (mpmath.mpf(value) for value in (eigenvalue, client_lr, prox))
        return (1 - c * (e + p)) ** (steps - 1) * e


@given(
    st.floats(0, 2.5),
    st.lists(st.floats(0, 10), min_size=1, max_size=12).filter(lambda values: values[-1] > 1e-3),
    st.floats(0.1, 10),
    st.floats(0, 3),
)
def test_distortion_is_the_weighted_sum_of_powers(shift, values, eigenvalue, prox):
    client_lr = shift / (eigenvalue + prox)
    ratio = 1 - client_lr * (eigenvalue + prox)
    plain = sum(value * ratio**k for k, value in enumerate(values))
    size = sum(value * abs(ratio) ** k for k, value in enumerate(values))
    assert distortion(eigenvalue, client_lr, listed(values), prox) == pytest.approx(plain, abs=1e-12 * size)


RATES = [0.0, 5e-324, 1e-300, 1e-17, 1e-16, 1e-9, 0.05, 0.1, 0.1 - 1e-12]


@pytest.mark.parametrize("steps", [1, 2, 7, 1000, 10**6])
@pytest.mark.parametrize("prox", [0.0, 1e-12, 0.5, 5.0])
def test_phi_and_psi_to_rounding_at_extreme_arguments(steps, prox):
    for client_lr, eigenvalue in itertools.product(RATES, [1e-6, 1.0, 4.0]):
        exact = float(exact_phi(eigenvalue, client_lr, steps, prox))
        assert float(phi(eigenvalue, client_lr, steps, prox)) == pytest.approx(exact, rel=2e-13, abs=0)
        exact = exact_psi(eigenvalue, client_lr, steps, prox)
        sign, log = log_distortion(eigenvalue, client_lr, last_step(steps), prox)
        with mpmath.workdps(DIGITS):
            assert float(log) == pytest.approx(float(mpmath.log(exact / eigenvalue)), rel=1e-12, abs=1e-300)
        assert sign == 1
        assert float(psi(eigenvalue, client_lr, steps, prox)) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("steps", [2, 3, 8, 9, 10**6, 10**6 + 1])
@pytest.mark.parametrize("shift", [1.25, 1.5, 1.75, 1.9375, 2.5, 3.0])
def test_signed_powers_beyond_one_over_smoothness(steps, shift):
    with mpmath.workdps(DIGITS):
        geometric = (1 - (1 - mpmath.mpf(shift)) ** steps) / shift
        power = (1 - mpmath.mpf(shift)) ** (steps - 1)
        for weights, exact in ((all_steps(steps), geometric), (last_step(steps), power)):
            sign, log = log_distortion(shift, 1.0, weights)
            assert int(sign) == int(mpmath.sign(exact))
            assert float(log) == pytest.approx(float(mpmath.log(abs(exact))), rel=1e-12, abs=1e-14)


def test_exact_values_at_the_borders():
    assert float(distortion(10.0, 0.1, all_steps(7))) == 1.0  # shift 1: only the first gradient is left
    assert float(distortion(10.0, 0.1, last_step(7))) == 0.0
    assert float(distortion(2.0, 1.0, all_steps(4))) == 0.0  # shift 2, even: the gradients cancel
    assert float(distortion(2.0, 1.0, all_steps(5))) == 1.0
    assert float(distortion(2.0, 1.0, last_step(5))) == 1.0
    assert float(distortion(3.0, 0.0, listed([1, 2, 3]))) == 6.0


def test_long_lists_underflow_nowhere():
    values = [0.0] * 3000 + [1.0, 2.0]
    sign, log = log_distortion(np.array([0.9, 1.9, 2.5]), 1.0, listed(values))
    with mpmath.workdps(DIGITS):
        for shift, found in zip((0.9, 1.9, 2.5), log, strict=True):
            ratio = 1 - mpmath.mpf(shift)
            exact = ratio**3000 * (1 + 2 * ratio)
            assert found == pytest.approx(float(mpmath.log(abs(exact))), rel=1e-12)
    assert sign.tolist() == [1.0, -1.0, -1.0]


@pytest.mark.parametrize("exponent", [-1e-300, -1e-17, -1e-3, -0.6, -0.7, -1.0, -40.0, -700.0, -np.inf])
def test_log_one_minus_exp(exponent):
    with mpmath.workdps(DIGITS):
        exact = float(mpmath.log(1 - mpmath.exp(mpmath.mpf(exponent)))) if np.isfinite(exponent) else 0.0
    if exponent == -1e-300:
        exact = np.log(1e-300)
    assert float(log_one_minus_exp(exponent)) == pytest.approx(exact, rel=1e-14, abs=0)


@pytest.mark.parametrize("steps", [2, 10, 1000, 10**6])
@pytest.mark.parametrize("client_lr", [1e-300, 1e-12, 1e-7, 1e-3, 0.05, 0.0999])
def test_log_condition_number_keeps_its_digits_near_one(steps, client_lr):
    with mpmath.workdps(600):
        high = 1 - (1 - mpmath.mpf(client_lr) * 10) ** steps
        low = 1 - (1 - mpmath.mpf(client_lr)) ** steps
        exact = mpmath.log(high / low)
        found = log_condition_number(Curvature(1, 10), client_lr, all_steps(steps))
        assert found == pytest.approx(float(exact), rel=1e-9 if float(exact) > 1e-300 else None, abs=1e-300)


def test_distortion_ratio_is_the_ratio_of_condition_numbers():
    ten = Curvature(1.0, 10.0)
    for weights, client_lr in ((all_steps(30), 0.06), (last_step(30), 0.002)):
        log = log_condition_number(ten, client_lr, weights)
        assert log_distortion_ratio(ten, client_lr, weights) == pytest.approx(np.log(10) - log, abs=1e-14)


def test_interval_search_finds_the_closed_form_where_there_is_one():
    curvature = Curvature(1.0, 10.0)
    for client_lr, steps in ((0.001, 50), (0.001, 200), (0.001, 2000)):
        # a list that is the last step in all but name goes through the search
        searched = listed([0.0] * (steps - 2) + [1e-300, 1.0])
        assert log_condition_number(curvature, client_lr, searched) == pytest.approx(
            log_condition_number(curvature, client_lr, last_step(steps)), abs=1e-9
        )


def test_beyond_the_range_only_odd_powers_keep_the_surrogate_convex():
    curvature = Curvature(1.0, 10.0)
    assert np.isfinite(log_condition_number(curvature, 0.15, all_steps(3)))
    assert np.isinf(log_condition_number(curvature, 0.25, all_steps(4)))
    assert np.isinf(log_condition_number(curvature, 0.15, last_step(3)))
    assert np.isnan(log_distortion_ratio(curvature, 0.25, all_steps(4)))
    two = log_condition_number(Curvature(1.0, 2.0), 0.75, all_steps(3))  # phi = e (3 - 3 s + s^2), s = 0.75 e
    ends = [e * (3 - 2.25 * e + 0.5625 * e * e) for e in np.linspace(1, 2, 100001)]
    assert two == pytest.approx(np.log(max(ends) / min(ends)), abs=1e-9)
