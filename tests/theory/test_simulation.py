"""What a small simulation of the algorithms measures is what the theory says."""

import numpy as np
import pytest

from trainers.theory.families import worst_case
from trainers.theory.figures.continuum_runs import runs
from trainers.theory.interval import Curvature
from trainers.theory.rates import best_parameters
from trainers.theory.spectrum import distortion
from trainers.theory.surrogate import surrogate
from trainers.theory.tradeoff import tradeoff_point
from trainers.theory.weights import all_steps, last_step


def pseudo_gradient(clients, params, client_lr, weights, prox):
    """Mean over the clients of the weighted sum of local gradients, step by step."""
    values = [1.0] * weights.local_steps if weights.pattern == "all" else [0.0] * (weights.local_steps - 1) + [1.0]
    total = np.zeros_like(params)
    for share, hessian, center in zip(clients.weights, clients.hessians, clients.centers, strict=True):
        local = params.copy()
        for value in values:
            gradient = hessian @ (local - center) + prox * (local - params)
            total += share * value * gradient
            local -= client_lr * gradient
    return total


def simulate(clients, client_lr, weights, prox, best, rounds):
    """Models of the rounds at which pseudo-gradients are taken: momentum as in the framework's server step."""
    params, velocity, models = np.array([3.0, 3.0, 3.0]), np.zeros(3), []
    for _ in range(rounds):
        models.append(params)
        q = pseudo_gradient(clients, params, client_lr, weights, prox)
        velocity = best.momentum * velocity + q
        step = q + best.momentum * velocity if best.nesterov else velocity
        params = params - best.server_lr * step
    return np.array(models)


CASES = [
    *[(all_steps(steps), 0.05, 0.0) for steps in (1, 2, 5, 10, 20, 50)],
    *[(all_steps(steps), 0.05, 1.0) for steps in (2, 10, 50)],
    *[(last_step(steps), 0.5 / (10 * steps), 0.0) for steps in (2, 10, 50)],
]


@pytest.mark.parametrize(("weights", "client_lr", "prox"), CASES)
def test_rate_and_distance_on_the_worst_case(weights, client_lr, prox):
    curvature = Curvature(1.0, 10.0)
    clients = worst_case(curvature, client_lr, weights, prox)
    point = tradeoff_point(curvature, client_lr, weights, prox=prox)
    ends = distortion(np.array([1.0, 10.0]), client_lr, weights, prox) * [1.0, 10.0]
    best = best_parameters("sgd", *ends)
    enough = max(12, int(np.ceil(30 / -np.log(max(point.rate, 1e-3)))))
    models = simulate(clients, client_lr, weights, prox, best, enough + 1)
    errors = np.linalg.norm(models - models[-1], axis=1)
    last = int(np.flatnonzero(errors > 1e-9 * errors[0])[-1])  # before rounding takes over
    first = last // 2
    measured = (errors[last] / errors[first]) ** (1 / (last - first))
    assert measured == pytest.approx(point.rate, abs=1e-4)
    distance = np.linalg.norm(models[-1] - clients.optimum)
    assert distance / 2 == pytest.approx(point.suboptimality, abs=1e-4)


@pytest.mark.parametrize("server", ["nesterov", "heavy_ball"])
def test_momentum_reaches_its_rate_up_to_a_linear_factor(server):
    curvature, weights, client_lr = Curvature(1.0, 1000.0), all_steps(5), 0.0005
    clients = worst_case(curvature, client_lr, weights)
    ends = distortion(np.array([1.0, 1000.0]), client_lr, weights) * [1.0, 1000.0]
    best = best_parameters(server, *ends)
    point = tradeoff_point(curvature, client_lr, weights, server)
    models = simulate(clients, client_lr, weights, 0.0, best, 1001)
    errors = np.linalg.norm(models - surrogate(clients, client_lr, weights).optimum, axis=1)
    slope = (errors[250] / errors[125] / 2) ** (1 / 125)  # the factor T, twice as large
    assert slope == pytest.approx(point.rate, abs=2e-3)
    assert np.linalg.norm(models[-1] - clients.optimum) / 2 == pytest.approx(point.suboptimality, abs=1e-4)


def test_stationary_mean_and_spread_on_the_continuum():
    settings = [(0.5, 1), (0.5, 5), (0.5, 20), (0.0, 20), (0.01, 20), (0.1, 20), (1.0, 20)]
    printed = [
        (0.7150, 0.0014), (0.7869, 0.0027), (0.8007, 0.0030), (0.7149, 0.0077), (0.7227, 0.0074), (0.7744, 0.0057),
        (0.8157, 0.0021),
    ]  # fmt: skip
    tail = runs(settings, 200_000, 10)[:, 10_000:]
    for run, (mean, spread) in zip(tail, printed, strict=True):
        assert run.mean() == pytest.approx(mean, abs=1e-4)
        assert run.std() == pytest.approx(spread, abs=1e-4)


def test_smaller_client_rates_fluctuate_more_on_the_continuum():
    tail = runs([(0.5, 20), (0.1, 20), (0.0, 20)], 40_000, 20)[:, 1500:]
    assert tail[0].std() < tail[1].std() < tail[2].std()
    assert tail.mean(axis=1) == pytest.approx([0.799934, 0.773941, 0.714286], abs=0.006)
