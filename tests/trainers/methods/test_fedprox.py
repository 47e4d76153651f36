"""FedProx: FedAvg without prox, and the theory's worst case."""

import numpy as np
import pytest

from .four_clients import WORK, same
from .trials import train


def test_fedprox_without_prox_is_fedavg():
    same({"name": "fedprox", **WORK, "prox": 0.0}, {"name": "fedavg", **WORK})


@pytest.mark.parametrize(("local_steps", "prox"), [(1, 0.0), (2, 1.0), (50, 1.0)])
def test_the_worst_case_attains_the_theory(local_steps, prox):
    smoothness, client_lr = 10.0, 0.04

    def phi(curvature):
        return sum((1 - client_lr * (curvature + prox)) ** power * curvature for power in range(local_steps))

    low, high = phi(1.0), phi(smoothness)
    kappa = high / low
    task = {
        "name": "quadratic",
        "problem": "worst_case",
        "smoothness": smoothness,
        "client_lr": client_lr,
        "gradient_weights": [1.0] * local_steps,
        "prox": prox,
    }
    method = {"name": "fedprox", "client_lr": client_lr, "local_steps": local_steps, "prox": prox}
    given = {
        "task": task,
        "method": {**method, "server_lr": 2 / (low + high)},
        "init": [0.0, 1.0, 1.0],
        "rounds": 150,
        "report": ["params"],
        "eval_every": 150,
    }
    lines = train(given)
    # Both hold exactly: twice the bound on the centers times (sqrt k0 - sqrt k) / (sqrt k0 + sqrt k), and the rate.
    wanted = 2 * (smoothness**0.5 - kappa**0.5) / (smoothness**0.5 + kappa**0.5)
    assert lines[-1]["distance"] == pytest.approx(wanted, abs=1e-9)
    away = [abs(line["params"][1]) for line in lines[:6]]  # along this coordinate both minimizers are 0
    assert np.array(away[1:]) / away[:-1] == pytest.approx((kappa - 1) / (kappa + 1), rel=1e-9)
