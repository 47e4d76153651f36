import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import SpecError
from trainers.theory.interval import Curvature
from trainers.theory.rates import (
    SERVERS,
    asymptotic_rate,
    best_parameters,
    condition_number_of_rate,
    rate,
    rate_from_log,
)
from trainers.theory.tradeoff import (
    frontier,
    one_shot_suboptimality,
    suboptimality,
    suboptimality_from_distortion,
    tradeoff_point,
)
from trainers.theory.weights import all_steps, as_weights

logs = st.floats(0, 30)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("log", [0.0, 1e-300, 1e-20, 1e-8, 0.5, 20.0, 299.0, 301.0, 5000.0])
def test_rates_are_those_of_table_2(server, log):
    with mpmath.workdps(400):
        u = mpmath.mpf(log)
        exact = {
            "sgd": mpmath.tanh(u / 2),
            "heavy_ball": mpmath.tanh(u / 4),
            "nesterov": 1 - 2 / mpmath.sqrt(3 * mpmath.exp(u) + 1),
        }[server]
        assert float(rate_from_log(server, log)) == pytest.approx(float(exact), rel=1e-14, abs=0)
        if 1e-8 < log < 300:
            assert float(rate(server, np.exp(log))) == pytest.approx(float(exact), rel=1e-12)


@given(logs)
def test_momentum_helps(log):
    kappa = np.exp(log)
    assert rate("heavy_ball", kappa) <= rate("nesterov", kappa) <= rate("sgd", kappa)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kappa", [1.0, 2.0, 6.3763, 10.0, 50.0])
def test_best_parameters_reach_the_best_rate(server, kappa):
    best = best_parameters(server, 3.0, 3.0 * kappa)
    eigenvalues = np.linspace(3.0, 3.0 * kappa, 2001)
    found = asymptotic_rate(eigenvalues, best.server_lr, best.momentum, best.nesterov)
    assert found == pytest.approx(best.rate, abs=2e-7)  # double roots: half the digits
    assert best.rate == pytest.approx(float(rate(server, kappa)))
    for factor in (0.97, 1.03):
        assert asymptotic_rate(eigenvalues, factor * best.server_lr, best.momentum, best.nesterov) >= best.rate - 1e-9


@given(logs.filter(lambda log: log < 12))
def test_rate_and_condition_number_are_inverse(log):
    for server in SERVERS:
        assert np.log(condition_number_of_rate(server, rate_from_log(server, log))) == pytest.approx(log, abs=1e-9)


@given(st.floats(1.001, 1e4), st.integers(1, 1000), st.floats(1e-6, 0.999), st.floats(0, 5))
def test_every_setting_lies_on_one_curve(kappa0, steps, share, prox):
    curvature = Curvature(1.0, kappa0)
    s = one_shot_suboptimality(curvature)
    for server in SERVERS:
        point = tradeoff_point(curvature, share / (kappa0 + prox), all_steps(steps), server, prox)
        assert point.suboptimality == pytest.approx(float(frontier(server, curvature, point.rate)), abs=1e-9)
        assert point.suboptimality == pytest.approx(float(suboptimality(kappa0, point.condition_number)), abs=1e-9)
        rho, delta = point.rate, point.suboptimality
        if server == "heavy_ball":  # Einstein's sum of rate and suboptimality is constant: symmetric
            assert (rho + delta) / (1 + rho * delta) == pytest.approx(s, abs=1e-12)
            assert float(frontier(server, curvature, delta)) == pytest.approx(rho, abs=1e-9)
        if server == "sgd":
            assert 2 * np.arctanh(rho) + 4 * np.arctanh(delta) == pytest.approx(np.log(kappa0), abs=1e-6)


def test_ends_of_the_curves():
    ten = Curvature(1.0, 10.0)
    for server in SERVERS:
        assert float(frontier(server, ten, 0.0)) == pytest.approx(0.5194938532959157, abs=1e-15)
        assert float(frontier(server, ten, rate(server, 10.0))) == pytest.approx(0.0, abs=1e-15)


def test_suboptimality_in_two_spellings():
    assert float(suboptimality(9.0, 4.0)) == pytest.approx(0.2)  # (3 - 2) / (3 + 2)
    assert float(suboptimality_from_distortion(4.0, 9.0)) == pytest.approx(0.2)
    assert float(suboptimality(4.0, 9.0)) == pytest.approx(-0.2)


def test_points_outside_the_range_are_computed_and_say_so():
    point = tradeoff_point(Curvature(1, 10), 0.1, all_steps(10))
    assert "client_lr * (L + prox) = 1" in point.messages[0]
    assert point.condition_number == pytest.approx(1 / (1 - 0.9**10))
    point = tradeoff_point(Curvature(1, 10), 0.25, as_weights("1:4"))
    assert point.condition_number == np.inf
    assert point.rate == 1.0
    assert np.isnan(point.suboptimality)
    assert len(point.messages) == 2
    assert tradeoff_point(Curvature(1, 10), 50.0, all_steps(1)).messages == ()  # one step: the rate plays no part


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Curvature(2.0, 1.0), "L must be finite and at least mu=2"),
        (lambda: Curvature(0.0, 1.0), "mu must be above 0"),
        (lambda: Curvature(1.0, float("inf")), "L must be finite"),
        (lambda: tradeoff_point(Curvature(1, 2), -0.1, all_steps(2)), "client_lr must be at least 0"),
        (lambda: tradeoff_point(Curvature(1, 2), 0.1, all_steps(2), prox=-1), "prox must be at least 0"),
        (lambda: tradeoff_point(Curvature(1, 2), 0.1, all_steps(2), "heavyball"), "did you mean heavy_ball"),
        (lambda: best_parameters("sgd", 2.0, 1.0), "smallest <= largest"),
    ],
)
def test_wrong_input(call, words):
    with pytest.raises(SpecError, match=words):
        call()
