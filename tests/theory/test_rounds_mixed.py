"""Closed-form round maps of methods that mix clients and server, against doing the rounds."""

import warnings

import numpy as np
import pytest

from tests.theory.by_hand import LR, gradients, walk
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import MIXED, fixed_point, optimum, round_map
from trainers.theory.warning import TheoryWarning

STEPS = 6


def each(client, pull, clients):
    """The minimizer of one client's loss and the server's together."""
    hessian = clients.hessians[client]
    offsets = hessian @ clients.centers[client] - pull(np.zeros(3))
    slopes = np.stack([pull(unit) - pull(np.zeros(3)) for unit in np.eye(3)], axis=1)
    return np.linalg.solve(hessian + slopes, offsets)


def mixed_run(name, clients, central, rounds, server_lr, central_lr, merge_lr=1.0, central_steps=STEPS):
    """Models of a mixed method from 0, by doing its rounds."""
    weights, params = clients.weights, np.zeros(3)
    to_clients, to_center, models = np.zeros(3), np.zeros(3), [np.zeros(3)]

    def pull(x):
        return central.hessian @ (x - central.center)

    for _ in range(rounds):
        anchor = np.tile(params, (len(weights), 1))
        two_way = name == "two_way_transfer"
        if name == "pooled_training":
            ends = params
            for _ in range(STEPS):
                ends = ends - LR * (weights @ gradients(clients, ends) + pull(ends))
            params = params + server_lr / LR * (ends - params)
            models.append(params)
            continue
        if name == "all_on_client":
            joined = client_quadratics(
                clients.hessians + central.hessian, [each(i, pull, clients) for i in range(len(weights))], weights
            )
            params = params - server_lr * weights @ walk(joined, anchor, anchor, STEPS, 0 * anchor)[0].sum(axis=0)
            models.append(params)
            continue
        correction = pull(params) if name == "one_way_transfer" else to_clients
        seen, ends = walk(clients, anchor, anchor, STEPS, correction * np.ones((len(weights), 1)))
        federated = -server_lr * weights @ seen.sum(axis=0)
        if name == "one_way_transfer":
            params = params + federated
        else:
            local = params.copy()
            for _ in range(central_steps):
                local = local - central_lr * (pull(local) + to_center)
            moved = local - params
            params = params + merge_lr * (moved + federated)
            if two_way:
                client_moves = weights @ (ends - anchor)
                central_mean = -moved / (central_lr * central_steps) - to_center
                client_mean = -client_moves / (LR * STEPS) - to_clients
                to_clients, to_center = central_mean, client_mean
        models.append(params)
    return np.array(models)


@pytest.mark.parametrize("name", sorted(MIXED))
@pytest.mark.parametrize(("server_lr", "central_lr", "merge_lr"), [(LR, LR, 1.0), (0.03, 0.02, 0.5)])
def test_mixed_methods_round_by_round(name, server_lr, central_lr, merge_lr, clients, central):
    method = {"name": name, "client_lr": LR, "server_lr": server_lr, "local_steps": STEPS}
    if name in ("parallel_training", "two_way_transfer"):
        method |= {"central_lr": central_lr, "merge_lr": merge_lr, "central_steps": 4}
    found = round_map(method, clients, central=central)
    models = mixed_run(name, clients, central, 25, server_lr, central_lr, merge_lr, 4)
    size = np.abs(models).max()
    assert found.after(np.zeros(3), 25) == pytest.approx(models, rel=1e-9, abs=1e-11 * size)
    drifts = name != "pooled_training"  # the clients' own
    assert (np.linalg.norm(found.fixed_point - optimum(method, clients, central)) > 1e-3) == drifts


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
