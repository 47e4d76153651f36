"""Round maps of methods that remember: Mime's algorithm done step by step, limits and fixed points.

Rounds of stored SCAFFOLD, FedDyn and FedGA are those of trials (tests/trainers/methods/test_closed_forms.py), which are
compared with the papers' algorithms in test_scaffold.py, test_feddyn.py and test_fedga.py there.
"""

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import fixed_point, round_map

LR, STEPS, SERVER_LR, MOMENTUM = 0.06, 4, 0.05, 0.6
START = np.array([2.0, -1.0, 0.5])
WEIGHTS = np.array([0.1, 0.4, 0.3, 0.2])


@pytest.fixture(scope="module")
def clients():
    generator = np.random.default_rng(4)
    roots = generator.standard_normal((4, 3, 3))
    hessians = roots @ roots.transpose(0, 2, 1) / 3 + 0.4 * np.eye(3)
    return client_quadratics(hessians, generator.standard_normal((4, 3)), WEIGHTS)


def mime(clients, corrected, rounds):
    """Karimireddy et al. 2020, algorithm 1 with SGDm, client by client, with and without the correction."""
    x, m, models = START, np.zeros(3), [START]

    def gradient(client, at):
        return clients.hessians[client] @ (at - clients.centers[client])

    for _ in range(rounds):
        mean = WEIGHTS @ np.array([gradient(i, x) for i in range(4)])
        total = np.zeros(3)
        for i, weight in enumerate(WEIGHTS):
            y = x
            for _ in range(STEPS):
                slope = gradient(i, y) - gradient(i, x) + mean if corrected else gradient(i, y)
                step = (1 - MOMENTUM) * slope + MOMENTUM * m
                total = total + weight * step
                y = y - LR * step
        m = (1 - MOMENTUM) * mean + MOMENTUM * m
        x = x - SERVER_LR * total
        models.append(x)
    return np.array(models)


WORK = {"client_lr": LR, "local_steps": STEPS, "server_lr": SERVER_LR}
STORED = {"name": "scaffold", **WORK, "variates": "stored"}
FEDDYN = {"name": "feddyn", **WORK, "server_lr": LR, "prox": 0.3}
MIME = {"name": "mime", **WORK, "momentum": MOMENTUM}
MIMELITE = {**MIME, "name": "mimelite"}
FEDGA = {"name": "fedga", **WORK, "displacement": 0.2, "prox": 0.4, "reuse_mean_gradient": True}
FINDING = [STORED, {**STORED, "variate_update": "gradient"}, FEDDYN, MIME]


@pytest.mark.parametrize(("method", "corrected"), [(MIMELITE, False), (MIME, True)])
def test_round_maps_are_the_algorithm(method, corrected, clients):
    wanted = mime(clients, corrected, 12)
    np.testing.assert_allclose(round_map(method, clients).after(START, 12), wanted, rtol=0, atol=1e-12)
    assert np.abs(np.diff(wanted, axis=0)).max(1).min() > 1e-4


@pytest.mark.parametrize("method", [*FINDING, MIMELITE, FEDGA])
def test_rounds_settle_at_the_fixed_points_and_these_methods_find_the_minimizer(method, clients):
    found, limit = round_map(method, clients), fixed_point(method, clients)
    assert found.rate < 0.99
    np.testing.assert_allclose(found.after(START, 2000)[-1], limit, rtol=0, atol=1e-10)
    away = np.linalg.norm(limit - clients.optimum)
    assert away < 1e-11 if method in FINDING else away > 1e-3


def test_feddyn_without_prox_is_fedavg_on_a_server_that_forgets_nothing(clients):
    """x_(t + 1) = x_t - server_lr (q_t + q_0 + ... + q_t); it settles where FedAvg does."""
    fedavg = round_map({"name": "fedavg", **WORK}, clients)
    x, gone = START, np.zeros(3)
    models = [x]
    for _ in range(8):
        pseudo_gradient = (x - fedavg.matrix @ x - fedavg.offset) / SERVER_LR
        gone = gone + pseudo_gradient
        x = x - SERVER_LR * (pseudo_gradient + gone)
        models.append(x)
    found = round_map({"name": "feddyn", **WORK, "prox": 0.0}, clients).after(START, 8)
    np.testing.assert_allclose(found, models, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[1], 2 * fedavg.after(START, 1)[1] - START, rtol=0, atol=1e-13)


def test_reuse_displaces_by_the_clients_own_gradients_where_it_settles(clients):
    """m is 0 there: sum_i p_i S_i (A_i (x + displacement (A_i x - b_i)) - b_i) = 0."""
    method = FEDGA
    limit = round_map(method, clients).fixed_state
    np.testing.assert_allclose(limit[3:], np.zeros(3), atol=1e-12)
    without = {name: value for name, value in method.items() if name != "reuse_mean_gradient"}
    assert np.linalg.norm(limit[:3] - fixed_point(without, clients)) > 1e-3


def test_too_many_clients_to_follow_are_refused():
    many = client_quadratics(np.ones((240, 1, 1)), np.arange(240.0)[:, None])
    with pytest.raises(
        SpecError, match=r"must have at most 240 numbers for a closed form, got 241 \(the model and 240 v"
    ):
        fixed_point(FEDDYN, many)
    assert fixed_point(MIME, many) == pytest.approx([119.5])
