"""[B] section 7 against exact second moments: on one-dimensional clients with additive noise these are recursions."""

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.theory.families import two_clients
from trainers.theory.interval import Curvature
from trainers.theory.spectrum import phi
from trainers.theory.stochastic_rates import (
    Noise,
    both_rates_decay,
    contraction,
    corollary_28,
    decaying_server_rate,
    largest_server_lr,
    theorem_26,
    theorem_27,
    theorem_29,
)
from trainers.theory.surrogate import surrogate
from trainers.theory.weights import all_steps

CLIENTS, CURVATURE = two_clients(), Curvature(1.0, 2.0)
NOISE = Noise(gradient_noise=3.0, clients_per_round=2, batch_size=4)
ROUNDS = 3000
TIMES = np.arange(1.0, ROUNDS + 1)


def moments(steps, client_lr, server_lr, start, target=None):
    """Expected squared distance to `target` (the surrogate's optimum if None) at t = 1, 2, ..., ROUNDS.

    The noise of local step k enters the pseudo-gradient with the factor (1 - client_lr A)^(K - k).
    """
    client_lr, server_lr = np.broadcast_to(client_lr, ROUNDS), np.broadcast_to(server_lr, ROUNDS)
    rates, places = np.unique(client_lr, return_inverse=True)
    local = surrogate(CLIENTS, rates, all_steps(steps))
    kept = 1 - rates[:, None, None] * np.array([1.0, 2.0])[:, None]
    gains = (kept ** (2 * np.arange(steps))).sum(axis=(1, 2)) / 4  # weights (1/2)^2
    noise = gains * NOISE.gradient_noise**2 / NOISE.batch_size
    optima, slopes = local.optimum[:, 0], local.hessian[:, 0, 0]
    mean, variance, found = start, 0.0, []
    for place, rate in zip(places, server_lr, strict=True):
        found.append((mean - (optima[place] if target is None else target)) ** 2 + variance)
        mean = mean - rate * slopes[place] * (mean - optima[place])
        variance = (1 - rate * slopes[place]) ** 2 * variance + rate**2 * noise[place]
    return np.array(found)


@pytest.mark.parametrize("steps", [1, 3, 20])
@pytest.mark.parametrize("client_lr", [0.0, 0.1, 0.4])
def test_fixed_rates(steps, client_lr):
    server_lr = 0.9 * largest_server_lr(CURVATURE, client_lr, steps)
    exact = moments(steps, client_lr, server_lr, start=4.0)
    bound = theorem_26(CURVATURE, client_lr, steps, server_lr, NOISE, exact[0], np.arange(ROUNDS))
    assert (exact <= bound * (1 + 1e-12)).all()
    assert bound[-1] < 0.05 * bound[0] + 1.1 * server_lr * NOISE.variance(steps) / phi(1.0, client_lr, steps)
    next_one = contraction(CURVATURE, client_lr, steps, server_lr, NOISE, exact[:-1])
    assert (exact[1:] <= next_one * (1 + 1e-12)).all()


@pytest.mark.parametrize("steps", [1, 3, 20])
@pytest.mark.parametrize("client_lr", [0.0, 0.1, 0.4])
def test_decaying_server_rate(steps, client_lr):
    schedule = decaying_server_rate(CURVATURE, client_lr, steps)
    exact = moments(steps, client_lr, schedule.at(TIMES), start=4.0)
    bound = theorem_27(CURVATURE, client_lr, steps, NOISE, exact[0], TIMES)
    assert (exact <= bound * (1 + 1e-12)).all()
    assert bound[-1] < 0.02 * bound[0]


def test_corollary_28_bounds_the_distance_to_the_true_optimum():
    steps, epsilon = 10, 0.2
    client_lr = -np.log1p(-epsilon) / (steps * 2.0)
    schedule = decaying_server_rate(CURVATURE, client_lr, steps)
    start_sq = (4.0 - float(surrogate(CLIENTS, client_lr, all_steps(steps)).optimum[0])) ** 2
    exact = moments(steps, client_lr, schedule.at(TIMES), 4.0, target=2 / 3)
    bound = corollary_28(CLIENTS, epsilon, steps, NOISE, start_sq, TIMES)
    assert (exact <= bound).all()
    with pytest.raises(SpecError, match="keep client_lr below"):
        corollary_28(CLIENTS, 1 - np.exp(-2.0), 2, NOISE, 1.0, 1)


@pytest.mark.parametrize("steps", [2, 10, 100])
def test_both_rates_decay_to_the_true_optimum(steps):
    client_lr, server_lr = both_rates_decay(CURVATURE, steps, TIMES)
    exact = moments(steps, client_lr, server_lr, 4.0, target=2 / 3)
    first = surrogate(CLIENTS, client_lr[0], all_steps(steps))
    start_sq = (4.0 - float(first.optimum[0])) ** 2
    bound = theorem_29(CURVATURE, steps, NOISE, 0.25, start_sq, TIMES)
    assert (exact <= bound).all()
    assert exact[-1] < 0.02 * exact[0]
    printed = theorem_29(CURVATURE, steps, NOISE, 0.25, start_sq, 10, corrected=False)
    assert bound[9] - printed == pytest.approx(16 * 0.25**2 * 4 * ((steps - 1) ** 2 - 1) / (12 + 10))


def test_schedule_of_theorem_29():
    client_lr, server_lr = both_rates_decay(CURVATURE, 4, np.array([1.0, 8.0]))  # b = 3 * 2^2 = 12
    assert client_lr == pytest.approx([1 / 26, 1 / 40])
    assert server_lr == pytest.approx(3 / (phi(1.0, client_lr, 4) * [13, 20]))
    many, _ = both_rates_decay(CURVATURE, 1000, 1.0)
    assert many == pytest.approx(np.log(2) / 1000)


def test_variance_counts_the_cohort_when_it_is_given():
    assert Noise(2.0, 4, 5).variance(10) == pytest.approx(10 * 4 / 20)
    assert Noise(2.0, 4, 5, cohort_variance=8.0).variance(10) == pytest.approx(2 + 2)


def test_rates_outside_the_range_are_errors():
    with pytest.raises(SpecError, match=r"client_lr must be below 1 / L = 0.5"):
        theorem_27(CURVATURE, 0.5, 3, NOISE, 1.0, 1)
    with pytest.raises(SpecError, match=r"server_lr must be above 0 and at most 0\.25"):
        theorem_26(CURVATURE, 0.0, 1, 0.3, NOISE, 1.0, 1)


def test_constants_when_noise_dominates():
    """G = 3, M = 2, B = 4, K = 5, client_lr 0 so that phi is 5 e: all by hand."""
    variance = 5 * 9 / 8
    assert NOISE.variance(5) == variance
    assert theorem_26(CURVATURE, 0.0, 5, 0.01, NOISE, 0.0, 7) == pytest.approx(0.01 * variance / 5)
    assert theorem_27(CURVATURE, 0.0, 5, NOISE, 0.0, 2) == pytest.approx(4 * variance / 25 / (2 * 4 + 2))
    expected = (2 * 18 * 9 / (5 * 8) + 16 * (0.25 * 2 * 4) ** 2) / (3 * 4 + 8)
    assert theorem_29(CURVATURE, 5, NOISE, 0.25, 0.0, 8) == pytest.approx(expected)
    assert theorem_29(CURVATURE, 5, NOISE, 0.0, 50.0, 8) == pytest.approx(2 * 13 * 50 / 20)
