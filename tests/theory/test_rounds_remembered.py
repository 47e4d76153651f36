"""Round maps of methods that remember: Mime's and FedGA's algorithms done step by step, limits and fixed points.

Rounds of stored SCAFFOLD and FedDyn are those of trials (tests/trainers/methods/test_closed_forms.py), which are
compared with the papers' algorithms in test_scaffold.py and test_feddyn.py there.
"""

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import fixed_point, round_map

LR, STEPS, SERVER_LR = 0.06, 4, 0.05
START = np.array([2.0, -1.0, 0.5])
WEIGHTS = np.array([0.1, 0.4, 0.3, 0.2])


@pytest.fixture(scope="module")
def clients():
    generator = np.random.default_rng(4)
    roots = generator.standard_normal((4, 3, 3))
    hessians = roots @ roots.transpose(0, 2, 1) / 3 + 0.4 * np.eye(3)
    return client_quadratics(hessians, generator.standard_normal((4, 3)), WEIGHTS)


class Walk:
    """Rounds of an algorithm, done on every client by itself."""

    def __init__(self, clients):
        self.clients = clients
        self.x = START.copy()

    def gradient(self, client, at):
        return self.clients.hessians[client] @ (at - self.clients.centers[client])

    def run(self, rounds):
        models = [self.x.copy()]
        for _ in range(rounds):
            self.round()
            models.append(self.x.copy())
        return np.array(models)

    def local(self, client, direction, start=None):
        """(end of the local steps, sum of the directions)."""
        y, total = np.array(self.x if start is None else start, float), np.zeros(3)
        for _ in range(STEPS):
            step = direction(client, y)
            total += step
            y = y - LR * step
        return y, total


class Mime(Walk):
    """Karimireddy et al. 2020, algorithm 1 with SGDm, with and without the correction."""

    def __init__(self, clients, momentum, corrected):
        super().__init__(clients)
        self.beta, self.corrected = momentum, corrected
        self.m = np.zeros(3)

    def round(self):
        mean = WEIGHTS @ np.array([self.gradient(i, self.x) for i in range(4)])
        x = self.x.copy()

        def direction(i, y):
            slope = self.gradient(i, y)
            if self.corrected:
                slope = slope - self.gradient(i, x) + mean
            return (1 - self.beta) * slope + self.beta * self.m

        total = WEIGHTS @ np.array([self.local(i, direction)[1] for i in range(4)])
        self.m = (1 - self.beta) * mean + self.beta * self.m
        self.x = self.x - SERVER_LR * total


class Reusing(Walk):
    """FedGA with the last round's mean local gradient; the displacement is undone at the end."""

    def __init__(self, clients, displacement, prox):
        super().__init__(clients)
        self.displacement, self.prox = displacement, prox
        self.mean = np.zeros(3)

    def round(self):
        ends, totals = [], []
        for i in range(4):
            gap = self.displacement * (self.gradient(i, self.x) - self.mean)
            start = self.x + gap
            end, total = self.local(i, lambda i, y, start=start: self.gradient(i, y) + self.prox * (y - start), start)
            ends.append(end - gap)
            totals.append(total)
        self.mean = WEIGHTS @ np.array(totals) / STEPS
        self.x = self.x + SERVER_LR / LR * WEIGHTS @ (np.array(ends) - self.x)


WORK = {"client_lr": LR, "local_steps": STEPS, "server_lr": SERVER_LR}
STORED = {"name": "scaffold", **WORK, "variates": "stored"}
FEDDYN = {"name": "feddyn", **WORK, "server_lr": LR, "prox": 0.3}
MIME = {"name": "mime", **WORK, "momentum": 0.6}
MIMELITE = {**MIME, "name": "mimelite"}
FEDGA = {"name": "fedga", **WORK, "displacement": 0.2, "prox": 0.4, "reuse_mean_gradient": True}
FINDING = [STORED, {**STORED, "variate_update": "gradient"}, FEDDYN, MIME]


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [
        (lambda clients: Mime(clients, 0.6, False), MIMELITE),
        (lambda clients: Mime(clients, 0.6, True), MIME),
        (lambda clients: Reusing(clients, 0.2, 0.4), FEDGA),
    ],
)
def test_round_maps_are_the_algorithms(algorithm, method, clients):
    wanted = algorithm(clients).run(12)
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
