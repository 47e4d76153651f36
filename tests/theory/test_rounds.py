"""Closed-form round maps against doing the rounds, and against the specifications' numbers."""

import warnings

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.families import random_clients
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import FEDERATED, MIXED, affine_round, fixed_point, optimum, round_map
from trainers.theory.surrogate import surrogate
from trainers.theory.warning import TheoryWarning
from trainers.theory.weights import last_step

LR, STEPS, PROX, SHIFT = 0.05, 6, 0.7, 0.03


def single(clients):
    """The first of a batch of one problem."""
    return client_quadratics(clients.hessians[0], clients.centers[0], clients.weights[0])


@pytest.fixture
def clients():
    return single(random_clients(np.random.default_rng(5), 1, 4, 3, np.array([8.0])))


@pytest.fixture
def central():
    generator = np.random.default_rng(6)
    root = generator.standard_normal((3, 3))
    return central_quadratic(root @ root.T + 0.5 * np.eye(3), generator.standard_normal(3))


def gradients(clients, params):
    return np.einsum("ijk,ik->ij", clients.hessians, np.asarray(params) - clients.centers)


def walk(clients, start, anchor, steps, correction, prox=0.0):
    """Local gradients of every step, (steps, clients, d), and where the clients end."""
    local, seen = np.array(start, float), []
    for _ in range(steps):
        seen.append(gradients(clients, local) + correction + prox * (local - anchor))
        local = local - LR * seen[-1]
    return np.array(seen), local


def returned(name, clients, params):
    """The mean pseudo-gradient of a method, by doing its local work."""
    count, weights = len(clients.weights), clients.weights
    anchor = np.tile(params, (count, 1))
    own = gradients(clients, params)
    mean = weights @ own
    none = np.zeros_like(own)
    if name in ("fedavg", "reptile", "local_sgd", "lookahead"):
        return weights @ walk(clients, anchor, anchor, STEPS, none)[0].sum(axis=0)
    if name in ("fedprox", "minibatch_prox"):
        return weights @ walk(clients, anchor, anchor, STEPS, none, PROX)[0].sum(axis=0)
    if name in ("fedsgd", "minibatch_sgd"):
        return STEPS * mean
    if name == "local_update":
        seen = walk(clients, anchor, anchor, 3, none, PROX)[0]
        return weights @ np.einsum("k,kij->ij", [0.5, 0.0, 2.0], seen)
    if name == "fomaml":
        return weights @ walk(clients, anchor, anchor, STEPS, none)[0][-1]
    if name == "scaffold":
        return weights @ walk(clients, anchor, anchor, STEPS, mean - own)[0].sum(axis=0)
    if name == "fedga":
        return weights @ walk(clients, anchor + SHIFT * (own - mean), anchor, STEPS, none)[0].sum(axis=0)
    if name == "gradalign":
        return weights @ gradients(clients, anchor + SHIFT * (own - mean))
    if name == "regularized_gd":
        return mean + SHIFT * weights @ np.einsum("ijk,ik->ij", clients.hessians - clients.hessian, own - mean)
    if name == "linear_scaling":
        return count * mean
    if name == "aligned_linear_scaling":
        others = count * mean - own
        return count * weights @ gradients(clients, anchor - LR / 2 * others)
    raise AssertionError(name)


def setting(name):
    extra = {
        "fedprox": {"prox": PROX},
        "minibatch_prox": {"prox": PROX},
        "fedga": {"displacement": SHIFT},
        "local_update": {"gradient_weights": [0.5, 0, 2], "prox": PROX},
        "gradalign": {"displacement": SHIFT},
        "regularized_gd": {"misalignment_weight": SHIFT},
    }.get(name, {})
    one_step = ("local_update", "gradalign", "regularized_gd", "linear_scaling", "aligned_linear_scaling")
    steps = {} if name in one_step else {"local_steps": STEPS}
    rate = {} if name in ("regularized_gd", "linear_scaling") else {"client_lr": LR}
    return {"name": name, "server_lr": 0.01, **rate, **steps, **extra}


@pytest.mark.parametrize("name", sorted(set(FEDERATED) - {"maml", "feddyn", "mime", "mimelite"}))
def test_round_maps_are_what_local_work_returns(name, clients):
    params = np.array([1.0, -2.0, 0.5])
    affine = affine_round(setting(name), clients)
    expected = returned(name, clients, params)
    assert affine.gradient @ params - affine.pull == pytest.approx(expected, abs=1e-12)
    assert round_map(setting(name), clients).after(params, 1)[1] == pytest.approx(params - 0.01 * expected, abs=1e-13)
    limit = fixed_point(setting(name), clients)
    assert returned(name, clients, limit) == pytest.approx(np.zeros(3), abs=1e-11)


@pytest.mark.parametrize("prox", [0.0, PROX])
def test_maml_is_the_gradient_through_the_adaptation(prox, clients):
    """[A] Theorem 2, and with proximal inner steps, by finite differences of the adapted loss."""

    def adapted_loss(params):
        local = np.tile(params, (4, 1))
        anchor = local.copy()
        for _ in range(STEPS):
            local = local - LR * (gradients(clients, local) + prox * (local - anchor))
        gaps = local - clients.centers
        return 0.5 * np.einsum("i,ij,ijk,ik->", clients.weights, gaps, clients.hessians, gaps)

    params = np.array([1.0, -2.0, 0.5])
    shifts = 1e-5 * np.eye(3)
    slopes = [(adapted_loss(params + shift) - adapted_loss(params - shift)) / 2e-5 for shift in shifts]
    method = {"name": "maml", "client_lr": LR, "local_steps": STEPS, "prox": prox}
    affine = affine_round(method, clients)
    assert affine.gradient @ params - affine.pull == pytest.approx(slopes, abs=1e-7)
    odd = surrogate(clients, LR, last_step(2 * STEPS + 1), prox)
    same = np.allclose(affine.gradient, odd.hessian, rtol=1e-10)
    assert same == (prox == 0)  # with prox, MAML is not a last-step method


def test_special_cases_are_equal(clients):
    def matrix(name, **changes):
        return affine_round({**setting(name), **changes}, clients).gradient

    fedavg = matrix("fedavg")
    assert matrix("fedprox", prox=0.0) == pytest.approx(fedavg, abs=1e-13)
    assert matrix("fedga", displacement=0.0) == pytest.approx(fedavg, abs=1e-13)
    assert matrix("scaffold", correction=0.0) == pytest.approx(fedavg, abs=1e-13)
    assert matrix("fedavg", client_lr=0.0) == pytest.approx(matrix("fedsgd"), abs=1e-13)
    assert matrix("fedga", local_steps=1) == pytest.approx(matrix("gradalign"), abs=1e-13)
    assert matrix("gradalign") == pytest.approx(matrix("regularized_gd"), abs=1e-13)
    assert matrix("scaffold", local_steps=1) == pytest.approx(matrix("fedavg", local_steps=1), abs=1e-13)
    assert matrix("local_update", gradient_weights="1:6", prox=0.0) == pytest.approx(fedavg, abs=1e-13)


def test_scaffold_and_no_local_work_find_the_optimum(clients):
    assert fixed_point(setting("scaffold"), clients) == pytest.approx(clients.optimum, abs=1e-13)
    assert fixed_point(setting("fedsgd"), clients) == pytest.approx(clients.optimum, abs=1e-13)
    assert np.linalg.norm(fixed_point(setting("fedavg"), clients) - clients.optimum) > 0.01


def hand(name, **more):
    two = client_quadratics([[[1.0]], [[3.0]]], [[0.0], [3.0]])
    method = {"name": name, "client_lr": 0.1, "server_lr": 0.1, **more}
    return round(float(round_map(method, two).after(np.array([1.0]), 1)[1, 0]), 12)


def test_the_hand_computed_fixture():
    assert hand("fedavg", local_steps=1) == hand("scaffold", local_steps=1) == 1.25
    assert hand("gradalign", displacement=0.05) == hand("fedga", local_steps=1, displacement=0.05) == 1.2675
    assert hand("fedavg", local_steps=2) == 1.415
    assert hand("fedga", local_steps=2, displacement=0.05) == 1.443
    assert hand("fedga", local_steps=2, displacement=0.2) == 1.527
    assert hand("scaffold", local_steps=2) == 1.45
    assert hand("fedavg", local_steps=3) == 1.5215
    assert hand("fedga", local_steps=3, displacement=0.05) == 1.555275
    assert hand("fedga", local_steps=3, displacement=0.2) == 1.6566
    assert hand("scaffold", local_steps=3) == 1.6125
    assert [hand("fedprox", local_steps=K, prox=1.0) for K in (1, 2, 3)] == [1.25, 1.39, 1.466]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_server_momentum_as_in_the_framework(momentum, nesterov, clients):
    method, server = setting("fedavg"), {"name": "sgd", "momentum": momentum, "nesterov": nesterov}
    found = round_map(method, clients, server)
    params, velocity = np.array([1.0, -2.0, 0.5]), np.zeros(3)
    models = found.after(params, 30)
    for expected in models:
        assert params == pytest.approx(expected, abs=1e-11)
        q = returned("fedavg", clients, params)
        velocity = momentum * velocity + q
        params = params - 0.01 * (q + momentum * velocity if nesterov else velocity)
    assert found.fixed_point == pytest.approx(fixed_point(method, clients), abs=1e-11)


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


def test_second_order_terms_of_a_round(clients):
    """FedGA - FedAvg = -lr displacement K grad r, SCAFFOLD - FedAvg = -lr^2 K (K - 1) / 2 grad r, up to third order."""
    params = np.array([1.0, -2.0, 0.5])
    own = gradients(clients, params)
    gaps = own - clients.weights @ own
    slope = clients.weights @ np.einsum("ijk,ik->ij", clients.hessians - clients.hessian, gaps)

    def change(name, rate, **more):
        method = {"name": name, "client_lr": rate, "server_lr": rate, "local_steps": 5, **more}
        return round_map(method, clients).after(params, 1)[1]

    remainders = {"fedga": [], "scaffold": []}
    for rate in (1e-3, 5e-4):
        fedavg = change("fedavg", rate)
        remainders["fedga"].append(change("fedga", rate, displacement=rate) - fedavg + rate * rate * 5 * slope)
        remainders["scaffold"].append(change("scaffold", rate) - fedavg + rate * rate * 10 * slope)
    for one, half in remainders.values():
        assert np.linalg.norm(one) / np.linalg.norm(half) == pytest.approx(8, rel=0.05)


def test_weight_decay_draws_every_local_gradient_towards_zero(clients):
    method = {**setting("fedavg"), "weight_decay": 0.4}
    params = np.array([1.0, -2.0, 0.5])
    local, total = np.tile(params, (4, 1)), np.zeros(3)
    for _ in range(STEPS):
        seen = gradients(clients, local) + 0.4 * local
        total += clients.weights @ seen
        local = local - LR * seen
    assert round_map(method, clients).after(params, 1)[1] == pytest.approx(params - 0.01 * total, abs=1e-13)
    assert optimum(method, clients) == pytest.approx(clients.optimum)  # of the loss, which has no decay


def test_settings_of_batches_play_no_part(clients):
    extra = {"displacement_form": "each_step", "displacement_source": "batch", "local_epochs": None, "clip_norm": None}
    assert fixed_point({**setting("fedga"), **extra}, clients) == pytest.approx(fixed_point(setting("fedga"), clients))
    with pytest.raises(SpecError, match=r"clip_norm must be null for a closed form, got 5"):
        fixed_point({**setting("fedga"), "clip_norm": 5}, clients)


def test_wrong_methods_say_what_to_do(clients, central):
    cases = [
        ({"name": "fedavgg"}, None, "did you mean fedavg"),
        ({"name": "fedavg", "client_lr": 0.1, "local_step": 2, "server_lr": 1}, None, "did you mean local_steps"),
        ({"name": "fedavg", "client_lr": 0.1, "server_lr": 1}, None, "method.local_steps is missing"),
        ({"name": "fedavg", "client_lr": 0.1, "local_steps": 2}, None, "one of server_lr and delta_lr, got neither"),
        ({"name": "fedavg", "client_lr": 0, "local_steps": 2, "delta_lr": 1}, None, "needs client_lr above 0"),
        ({"name": "one_way_transfer", "client_lr": 0.1, "local_steps": 2, "server_lr": 1}, None, "needs a central"),
        ({"name": "fedavg", "client_lr": 0.1, "local_steps": 2.5, "server_lr": 1}, None, "whole number"),
        (
            {"name": "one_way_transfer", "client_lr": 0.1, "local_steps": 2, "server_lr": 1, "federated_weight": 2},
            central,
            "federated_weight must be between 0 and 1",
        ),
    ]
    for method, loss, words in cases:
        with pytest.raises(SpecError, match=words):
            round_map(method, clients, central=loss)
    with pytest.raises(SpecError, match="server must be sgd"):
        round_map(setting("fedavg"), clients, {"name": "yogi"})
