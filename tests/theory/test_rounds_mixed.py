"""Closed-form round maps of methods that mix clients and server, against doing the rounds."""

import warnings

import numpy as np
import pytest

from tests.theory.by_hand import LR, gradients
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import MIXED, fixed_point, optimum, round_map
from trainers.theory.warning import TheoryWarning

STEPS = 6


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
    first = (
        1e-5
        * 19
        / 2
        * np.linalg.solve(clients.hessian + central.hessian, (clients.hessian - central.hessian) @ gradient)
    )
    bias = fixed_point(slow, clients, central) - optimum(slow, clients, central)
    assert bias == pytest.approx(first, rel=1e-3)


def test_one_step_identities_of_mixed_methods(clients, central):
    one = {"client_lr": LR, "delta_lr": 1.0, "local_steps": 1}
    parallel, one_way, two_way = (
        round_map({"name": name, **one}, clients, central=central).after(np.zeros(3), 8)
        for name in ("parallel_training", "one_way_transfer", "two_way_transfer")
    )
    assert parallel == pytest.approx(one_way, abs=1e-14)

    def both(params):
        return clients.weights @ gradients(clients, params) + central.hessian @ (params - central.center)

    params, before = np.zeros(3), np.zeros(3)
    for model in two_way:
        assert params == pytest.approx(model, abs=1e-12)
        now = both(params)
        params, before = params - LR * (now + before), now


@pytest.mark.parametrize(("client_lr", "steps", "stable"), [(0.3, 1, True), (0.3, 2, False), (0.05, 10, True)])
def test_one_way_transfer_diverges_where_the_scalar_condition_says(client_lr, steps, stable):
    """Unstable when (1 + c / a) (1 - (1 - lr a)^K) > 2; a = 1, c = 3."""
    clients, central = client_quadratics([[[1.0]]], [[1.0]]), central_quadratic([[3.0]], [0.0])
    method = {"name": "one_way_transfer", "client_lr": client_lr, "delta_lr": 1.0, "local_steps": steps}
    found = round_map(method, clients, central=central)
    assert found.rate == pytest.approx(abs(1 - 4 * (1 - (1 - client_lr) ** steps)))
    assert (found.rate < 1) == stable


def test_stability_limits_of_one_step():
    """In step size times largest eigenvalue: 2 for parallel and one-way, 1 for two-way."""
    clients, central = client_quadratics([[[1.0]]], [[1.0]]), central_quadratic([[3.0]], [0.0])
    for name, limit in (("parallel_training", 2.0), ("one_way_transfer", 2.0), ("two_way_transfer", 1.0)):
        for share, stable in ((0.99, True), (1.01, False)):
            method = {"name": name, "client_lr": share * limit / 4, "delta_lr": 1.0, "local_steps": 1}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TheoryWarning)
                assert (round_map(method, clients, central=central).rate < 1) == stable


def test_loss_weights_scale_both_losses(clients, central):
    method = {"name": "one_way_transfer", "client_lr": LR, "delta_lr": 1.0, "local_steps": 3}
    weighted = optimum({**method, "federated_weight": 0.25, "central_weight": 0.75}, clients, central)
    pull = 0.25 * clients.hessian @ clients.optimum + 0.75 * central.hessian @ central.center
    assert weighted == pytest.approx(np.linalg.solve(0.25 * clients.hessian + 0.75 * central.hessian, pull))
    one = {**method, "local_steps": 1, "central_weight": 0.75}
    assert fixed_point(one, clients, central) == pytest.approx(weighted, abs=1e-12)
