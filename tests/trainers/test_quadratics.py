"""Rounds on quadratics against the theory's closed forms, in float64."""

import itertools

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

FAMILIES = {
    "one": [1.0],
    "sum of 2": [1.0, 1.0],
    "sum of 7": [1.0] * 7,
    "last of 5": [0.0] * 4 + [1.0],
    "any": [0.3, 0.0, 2.0, 1.5, 0.1],
}


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


def train(given, **pack):
    return Pack.from_spec(parse(given), **pack).advance()


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


def test_training_ends_at_the_surrogate_minimizer():
    hessians, centers, weights = random_problem(seed=1)
    optimum = np.linalg.solve(
        np.einsum("i,ijk->jk", weights, hessians), np.einsum("i,ijk,ik->j", weights, hessians, centers)
    )
    members, minimizers = [], []
    for gradient_weights, prox, client_lr in itertools.product(FAMILIES.values(), [0.0, 0.3, 2.0], [0.0, 0.07]):
        hessian, minimizer = surrogate(hessians, centers, weights, client_lr, gradient_weights, prox)
        eigenvalues = np.linalg.eigvals(hessian).real
        assert eigenvalues.min() > 0
        rate = 2 / (eigenvalues.max() + eigenvalues.min())
        setting = {"client_lr": client_lr, "gradient_weights": gradient_weights, "prox": prox, "server_lr": rate}
        members.append(setting)
        minimizers.append(minimizer)
    method = {"name": "local_update", **members[0]}
    given = document(hessians, centers, weights, method=method, rounds=300, eval_every=300, members=members)
    lines = train(given)[-len(members) :]
    for line, minimizer in zip(lines, minimizers, strict=True):
        np.testing.assert_allclose(line["params"], minimizer, rtol=0, atol=1e-10)
        assert line["distance"] == pytest.approx(np.linalg.norm(minimizer - optimum), abs=1e-10)
        losses = [0.5 * (minimizer - c) @ a @ (minimizer - c) for a, c in zip(hessians, centers, strict=True)]
        assert line["loss"] == pytest.approx(weights @ losses, rel=1e-10)


def test_one_local_step_and_client_lr_zero_are_without_distortion():
    hessians, centers, weights = random_problem(seed=2)
    for method in (
        {"name": "fedavg", "client_lr": 0.3, "local_steps": 1, "server_lr": 0.3},
        {"name": "fedavg", "client_lr": 0.0, "local_steps": 10, "server_lr": 0.03},
    ):
        line = train(document(hessians, centers, weights, method=method, rounds=300, eval_every=300))[-1]
        assert line["distance"] < 1e-10


GOLDEN = ([np.diag([1.0, 10.0]), [[5.5, 4.5], [4.5, 5.5]]], [[1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("method", "minimizer", "distance"),
    [
        ({"name": "fedavg", "client_lr": 0.05, "local_steps": 2}, (0.710613, 0.163504), 0.048964),
        ({"name": "fedavg", "client_lr": 0.05, "local_steps": 10}, (0.550125, 0.315285), 0.269231),
        ({"name": "fedavg", "client_lr": 0.05, "local_steps": 100}, (0.500002, 0.498518), 0.440714),
        ({"name": "fedprox", "client_lr": 0.05, "local_steps": 10, "prox": 1.0}, (0.562790, 0.296942), 0.247641),
        ({"name": "fomaml", "client_lr": 0.005, "local_steps": 10}, (0.686151, 0.180725), 0.078869),
        ({"name": "fedsgd"}, (0.7515528, 0.1366460), 0.0),
    ],
)
def test_golden_matrix_case(method, minimizer, distance):
    server_lr = 0.1 if method["name"] in ("fomaml", "fedsgd") else 0.05
    given = document(*GOLDEN, method={**method, "server_lr": server_lr}, rounds=250, eval_every=250)
    line = train(given)[-1]
    assert line["params"] == pytest.approx(minimizer, abs=1e-6)
    assert line["distance"] == pytest.approx(distance, abs=1e-6)


@pytest.mark.parametrize("client_lr", [0.0, 0.2, 0.5, 0.9, 1.1])
def test_two_clients_move_with_client_lr(client_lr):
    given = {
        "task": {"name": "quadratic", "problem": "two_clients"},
        "method": {"name": "fedavg", "client_lr": client_lr, "server_lr": 0.3, "local_steps": 2},
        "rounds": 400,
        "eval_every": 400,
        "report": ["params"],
    }
    line = train(given)[-1]
    assert line["params"][0] == pytest.approx((4 - 3 * client_lr) / (6 - 5 * client_lr), abs=1e-10)
    assert line["distance"] == pytest.approx(client_lr / (3 * (6 - 5 * client_lr)), abs=1e-10)


@pytest.mark.parametrize("local_steps", [1, 2, 3, 10, 30])
def test_two_clients_move_with_local_steps(local_steps):
    given = {
        "task": {"name": "quadratic", "problem": "two_clients"},
        "method": {"name": "fedavg", "client_lr": 0.5, "server_lr": 0.5, "local_steps": local_steps},
        "rounds": 200,
        "eval_every": 200,
        "report": ["params"],
    }
    wanted = (3 * 2**local_steps - 2) / (2 ** (local_steps + 2) - 2)
    assert train(given)[-1]["params"][0] == pytest.approx(wanted, abs=1e-10)


def test_continuum_stops_at_its_surrogate_minimizer():
    clients = 1000
    curvature = np.sqrt(0.25 + 3.75 * (np.arange(clients) + 0.5) / clients)
    table = {(0.5, 1): 0.714286, (0.5, 3): 0.767426, (0.5, 20): 0.799934, (0.0, 20): 0.714286, (0.1, 20): 0.773941}
    phis = [sum((1 - rate * curvature) ** power * curvature for power in range(steps)) for rate, steps in table]
    settings = [{"client_lr": client_lr, "local_steps": local_steps} for client_lr, local_steps in table]
    given = {
        "task": {"name": "quadratic", "problem": "continuum", "clients": clients},
        "method": {"name": "fedavg", **settings[0]},
        "members": [{**one, "server_lr": 0.5 / phi.mean()} for one, phi in zip(settings, phis, strict=True)],
        "rounds": 50,
        "eval_every": 50,
        "report": ["params"],
    }
    lines = train(given)[-len(table) :]
    for line, phi, printed in zip(lines, phis, table.values(), strict=True):
        assert line["params"][0] == pytest.approx((phi / curvature).mean() / phi.mean(), abs=1e-10)
        assert line["params"][0] == pytest.approx(printed, abs=2e-5)  # the table is of the continuum


def test_sum_of_two_is_twice_the_last_of_two_at_half_the_rate():
    hessians, centers, _ = random_problem(seed=3)
    one = {"name": "local_update", "client_lr": 0.2, "server_lr": 0.1, "gradient_weights": [1, 1]}
    two = {"name": "local_update", "client_lr": 0.1, "server_lr": 0.1, "gradient_weights": [0, 2]}
    lines = [train(document(hessians, centers, method=method, rounds=7))[-1] for method in (one, two)]
    np.testing.assert_allclose(lines[0]["params"], lines[1]["params"], rtol=0, atol=1e-12)


def test_noise_is_fresh_in_every_step_and_averages_over_the_batch():
    hessians = [[[1.0, 0.0], [0.0, 1.0]]] * 200
    task = {"name": "quadratic", "hessians": hessians, "centers": [[0.0, 0.0]] * 200, "gradient_noise": 0.5}
    spread = {}
    for batch_size in (None, 1, 25):
        given = {
            "task": task,
            "method": {"name": "fedsgd", "server_lr": 1e-9, "local_steps": 50},
            "clients_per_round": 1,
            "batch_size": batch_size,
            "rounds": 200,
            "eval_every": 200,
            "init": [0.0, 0.0],
            "report": ["params"],
        }
        lines = train(given)
        steps = np.diff(np.array([line["params"] for line in lines]), axis=0) / -1e-9
        spread[batch_size] = steps.std() / np.sqrt(50)
    assert spread[None] == spread[1]
    assert spread[1] == pytest.approx(0.5, rel=0.1)
    assert spread[25] == pytest.approx(0.1, rel=0.1)


def test_noise_leaves_the_expected_pseudo_gradient():
    # Full participation of 3000 equal clients: the mean over their independent noises is the surrogate's gradient.
    task = {"name": "quadratic", "hessians": [[[2.0]]] * 3000, "centers": [[1.0]] * 3000, "gradient_noise": 1.0}
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 1.0, "local_steps": 5}
    line = train({"task": task, "method": method, "rounds": 1, "init": [3.0], "report": ["params"]})[-1]
    expected = sum(0.8**power * 2.0 * 2.0 for power in range(5))
    deviation = np.sqrt(sum(0.8 ** (2 * power) for power in range(5)) / 3000)
    assert abs(3.0 - line["params"][0] - expected) < 4 * deviation
    assert abs(3.0 - line["params"][0] - expected) > 1e-6


@pytest.mark.parametrize("prox", [0.0, 1.0])
@pytest.mark.parametrize("local_steps", [1, 2, 10, 50])
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
        "rounds": 400,
        "report": ["params"],
        "eval_every": 400,
    }
    lines = train(given)
    # Both hold exactly: twice the bound on the centers times (sqrt k0 - sqrt k) / (sqrt k0 + sqrt k), and the rate.
    wanted = 2 * (smoothness**0.5 - kappa**0.5) / (smoothness**0.5 + kappa**0.5)
    assert lines[-1]["distance"] == pytest.approx(wanted, abs=1e-9)
    away = [abs(line["params"][1]) for line in lines[:6]]  # along this coordinate both minimizers are 0
    assert np.array(away[1:]) / away[:-1] == pytest.approx((kappa - 1) / (kappa + 1), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_automatic_decay_moves_from_the_surrogate_minimizer_to_the_optimum(seed):
    given = {
        "task": {"name": "quadratic", "problem": "continuum", "clients": 10000},
        "method": {"name": "fedavg", "client_lr": 0.5, "server_lr": 0.02, "local_steps": 20},
        "clients_per_round": 10,
        "rounds": 6000,
        "eval_every": 6000,
        "seed": seed,
        "init": [0.0],
        "report": ["params"],
    }
    tails = {}
    for name in ("constant", "plateau"):
        path = [line["params"][0] for line in train({**given, "schedule": {"name": name}})]
        tails[name] = np.mean(path[-500:])
    assert tails["constant"] == pytest.approx(0.79993, abs=0.015)
    assert tails["plateau"] == pytest.approx(5 / 7, abs=0.008)
    assert abs(tails["constant"] - 5 / 7) > 5 * abs(tails["plateau"] - 5 / 7)
