"""Where round maps of methods that mix clients and server settle.

Where they diverge is in tests/trainers/methods/test_stability.py.
"""

import numpy as np
import pytest

from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import MIXED, fixed_point, optimum, round_map

LR, STEPS = 0.05, 6


def gradients(clients, params):
    return np.einsum("ijk,ik->ij", clients.hessians, np.asarray(params) - clients.centers)


@pytest.mark.parametrize("name", sorted(MIXED))
def test_transfer_finds_the_optimum_when_clients_have_equal_hessians(name, clients, central):
    alike = client_quadratics(np.stack([clients.hessians[0]] * 4), clients.centers, clients.weights)
    method = {"name": name, "client_lr": LR, "delta_lr": 1.0, "local_steps": STEPS}
    found, best = round_map(method, alike, central=central), optimum(method, alike, central)
    if name == "parallel_training":
        assert np.linalg.norm(found.fixed_point - best) > 1e-3
        return
    assert found.fixed_point == pytest.approx(best, abs=1e-11)
    if name == "two_way_transfer":  # the corrections are the two gradients
        assert found.fixed_state[3:6] == pytest.approx(central.hessian @ (best - central.center), abs=1e-10)
        assert found.fixed_state[6:] == pytest.approx(alike.weights @ gradients(alike, best), abs=1e-10)


def test_parallel_training_closed_form_and_its_unbiased_cases(central):
    """(Q(A) + Q(C))^-1 (Q(A) p + Q(C) q), Q(H) = I - (I - lr H)^K; no bias for one step."""
    clients = client_quadratics([np.diag([1.0, 2.0, 3.0])], [[1.0, 0.0, -1.0]])

    def power(hessian):
        return np.eye(3) - np.linalg.matrix_power(np.eye(3) - LR * hessian, STEPS)

    a, c = power(clients.hessians[0]), power(central.hessian)
    method = {"name": "parallel_training", "client_lr": LR, "delta_lr": 1, "local_steps": STEPS}
    expected = np.linalg.solve(a + c, a @ clients.centers[0] + c @ central.center)
    assert fixed_point(method, clients, central) == pytest.approx(expected, abs=1e-13)
    assert round_map(method, clients, central=central).matrix == pytest.approx(np.eye(3) - a - c, abs=1e-13)
    one = {**method, "local_steps": 1}
    assert fixed_point(one, clients, central) == pytest.approx(optimum(one, clients, central), abs=1e-12)
    slow = {**method, "client_lr": 1e-5, "local_steps": 20}
    gradient = clients.hessian @ (optimum(slow, clients, central) - clients.centers[0])
    turned = (clients.hessian - central.hessian) @ gradient
    first = 1e-5 * 19 / 2 * np.linalg.solve(clients.hessian + central.hessian, turned)
    bias = fixed_point(slow, clients, central) - optimum(slow, clients, central)
    assert bias == pytest.approx(first, rel=1e-3)


def test_loss_weights_scale_both_losses(clients, central):
    method = {"name": "one_way_transfer", "client_lr": LR, "delta_lr": 1.0, "local_steps": 3}
    weighted = optimum({**method, "federated_weight": 0.25, "central_weight": 0.75}, clients, central)
    pull = 0.25 * clients.hessian @ clients.optimum + 0.75 * central.hessian @ central.center
    assert weighted == pytest.approx(np.linalg.solve(0.25 * clients.hessian + 0.75 * central.hessian, pull))
    one = {**method, "local_steps": 1, "central_weight": 0.75}
    assert fixed_point(one, clients, central) == pytest.approx(weighted, abs=1e-12)
