"""Local updates with any weights: FedAvg and FedProx as limits, and on quadratics gradient descent on a surrogate."""

import numpy as np
import pytest

from .trials import limit, train

FAMILIES = {
    "one": [1.0],
    "sum of 2": [1.0, 1.0],
    "sum of 7": [1.0] * 7,
    "last of 5": [0.0] * 4 + [1.0],
    "any": [0.3, 0.0, 2.0, 1.5, 0.1],
}


def test_all_ones_is_fedavg_and_with_prox_fedprox():
    weights = {"client_lr": 0.1, "gradient_weights": [1, 1, 1, 1]}
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "local_update", **weights}, {"name": "fedavg", **work})
    limit({"name": "local_update", **weights, "prox": 0.7}, {"name": "fedprox", **work, "prox": 0.7})


def surrogate(hessians, centers, weights, client_lr, gradient_weights, prox):
    """(Hessian, minimizer) of the surrogate loss, from matrix powers."""
    total, pull = 0.0, 0.0
    for hessian, center, weight in zip(hessians, centers, weights, strict=True):
        shrink = np.eye(len(hessian)) - client_lr * (hessian + prox * np.eye(len(hessian)))
        distortion = sum(theta * np.linalg.matrix_power(shrink, power) for power, theta in enumerate(gradient_weights))
        total = total + weight * distortion @ hessian
        pull = pull + weight * distortion @ hessian @ center
    return total, np.linalg.solve(total, pull)


def random_problem(clients=4, dimension=3, seed=0):
    generator = np.random.default_rng(seed)
    factors = generator.normal(size=(clients, dimension, dimension))
    hessians = factors @ factors.transpose(0, 2, 1) / dimension + 0.5 * np.eye(dimension)
    weights = generator.random(clients) + 0.1
    return hessians, generator.normal(size=(clients, dimension)), weights / weights.sum()


def document(hessians, centers, weights=None, **changes):
    task = {"name": "quadratic", "hessians": np.asarray(hessians).tolist(), "centers": np.asarray(centers).tolist()}
    if weights is not None:
        task["client_weights"] = list(weights)
    return {"task": task, "rounds": 1, "eval_every": 1, "report": ["params"], **changes}


@pytest.mark.parametrize("client_lr", [0.0, 0.07])
@pytest.mark.parametrize("prox", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_round_is_a_gradient_step_on_the_surrogate(family, prox, client_lr):
    hessians, centers, weights = random_problem()
    gradient_weights = FAMILIES[family]
    method = {"name": "local_update", "client_lr": client_lr, "gradient_weights": gradient_weights, "prox": prox}
    start = np.array([2.0, -1.0, 0.5])
    given = document(hessians, centers, weights, method={**method, "server_lr": 0.11}, init=start.tolist())
    line = train(given)[-1]
    hessian, minimizer = surrogate(hessians, centers, weights, client_lr, gradient_weights, prox)
    gradient = hessian @ (start - minimizer)
    np.testing.assert_allclose(line["params"], start - 0.11 * gradient, rtol=0, atol=1e-12)
    assert line["update_norm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-12)


def test_sum_of_two_is_twice_the_last_of_two_at_half_the_rate():
    hessians, centers, _ = random_problem(seed=3)
    one = {"name": "local_update", "client_lr": 0.2, "server_lr": 0.1, "gradient_weights": [1, 1]}
    two = {"name": "local_update", "client_lr": 0.1, "server_lr": 0.1, "gradient_weights": [0, 2]}
    lines = [train(document(hessians, centers, method=method, rounds=7))[-1] for method in (one, two)]
    np.testing.assert_allclose(lines[0]["params"], lines[1]["params"], rtol=0, atol=1e-12)
