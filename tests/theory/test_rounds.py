"""Closed-form round maps against doing the rounds, and against the specifications' numbers."""

import numpy as np
import pytest

from tests.theory.by_hand import LR, gradients, walk
from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import FEDERATED, affine_round, fixed_point, optimum, round_map
from trainers.theory.surrogate import surrogate
from trainers.theory.weights import last_step

STEPS, PROX, SHIFT = 6, 0.7, 0.03


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
        others = count * mean - count * weights[:, None] * own
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
    with pytest.raises(SpecError, match="server must be one of sgd"):
        round_map(setting("fedavg"), clients, {"name": "yogi"})
