"""What is made of the clients' gradients under client optimizers: variates, reused means, displacement beside decay."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.run import run

HESSIANS = [[[2.0, 0.3], [0.3, 1.0]], [[0.5, 0.0], [0.0, 1.5]], [[1.0, -0.2], [-0.2, 0.7]]]
CENTERS = [[1.0, -1.0], [-2.0, 0.5], [0.5, 2.0]]
LR, SERVER_LR, STEPS, ROUNDS = 0.05, 0.04, 4, 6
WORK = {"client_lr": LR, "server_lr": SERVER_LR, "local_steps": STEPS}


def models(method, rounds=ROUNDS, **client):
    """((rounds + 1, 2) models, the last line)."""
    task = {"name": "quadratic", "hessians": HESSIANS, "centers": CENTERS}
    document = {"task": task, "method": method, "rounds": rounds, "init": [3.0, -2.0], "report": ["params"]}
    lines = list(run({**document, "client": client or None}))
    return np.array([line["params"] for line in lines]), lines[-1]


def gradient(client, at):
    return np.array(HESSIANS[client]) @ (at - np.array(CENTERS[client]))


def momentum(gradients):
    """Heavy-ball directions of a round's gradients so far; the last one."""
    held = 0.0
    for each in gradients:
        held = 0.9 * held + each
    return held


def signs(gradients):
    """Adam's with beta1 = beta2 = 0 and a small epsilon."""
    return gradients[-1] / (np.abs(gradients[-1]) + 1e-8)


OPTIMIZERS = {
    "momentum": (momentum, {"name": "momentum"}),
    "signs": (signs, {"name": "adam", "beta1": 0.0, "beta2": 0.0}),
}


def local(client, start, direction, correction=0.0):
    """(sum of the directions, mean of the gradients)."""
    y, gradients, total = start, [], 0.0
    for _ in range(STEPS):
        gradients.append(gradient(client, y) + correction)
        step = direction(gradients)
        total, y = total + step, y - LR * step
    return total, np.mean(gradients, 0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_stored_variates_are_means_of_gradients_whatever_the_client_optimizer(name):
    direction, settings = OPTIMIZERS[name]
    x, own = np.array([3.0, -2.0]), np.zeros((3, 2))
    wanted = [x]
    for _ in range(ROUNDS):
        corrections = own.mean(0) - own
        done = [local(client, x, direction, corrections[client]) for client in range(3)]
        own = np.array([mean for _, mean in done]) - corrections
        x = x - SERVER_LR * np.mean([total for total, _ in done], 0)
        wanted.append(x)
    found, last = models({"name": "scaffold", **WORK, "variates": "stored"}, **settings)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert last["bytes_up"] == ROUNDS * 3 * 2 * 2 * 8  # a pseudo-gradient and the change of the variate


def test_stored_variates_with_momentum_find_the_minimizer():
    """Variates of momentum's directions, which are up to ten gradients long, would make the rounds diverge."""
    method = {**WORK, "local_steps": 30, "variates": "stored"}
    found, last = models({**method, "name": "scaffold"}, 120, name="momentum")
    optimum = np.linalg.solve(np.sum(HESSIANS, 0), sum(np.array(h) @ c for h, c in zip(HESSIANS, CENTERS, strict=True)))
    assert not last["diverged"]
    np.testing.assert_allclose(found[-1], optimum, rtol=0, atol=1e-2)


@pytest.mark.parametrize("form", ["once", "each_step"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_reused_mean_is_of_gradients_whatever_the_client_optimizer(name, form):
    direction, settings = OPTIMIZERS[name]
    x, mean = np.array([3.0, -2.0]), np.zeros(2)
    wanted = [x]
    for _ in range(ROUNDS):
        done = [local(client, x + 0.2 * (gradient(client, x) - mean), direction) for client in range(3)]
        mean = np.mean([own for _, own in done], 0)
        x = x - SERVER_LR * np.mean([total for total, _ in done], 0)
        wanted.append(x)
    method = {"name": "fedga", **WORK, "displacement": 0.2, "reuse_mean_gradient": True, "displacement_form": form}
    found, last = models(method, **settings)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert last["bytes_up"] == ROUNDS * 3 * 2 * 2 * 8  # the pseudo-gradient does not tell the mean of the gradients
    assert models(method)[1]["bytes_up"] == ROUNDS * 3 * 2 * 8


@pytest.mark.parametrize("reuse", [False, True])
def test_both_forms_of_displacement_are_equal_with_decay_beside_the_gradients(reuse):
    method = {"name": "fedga", **WORK, "displacement": 0.4, "reuse_mean_gradient": reuse, "prox": 0.2}
    method |= {"weight_decay": 0.3}
    once = models(method, name="adamw")[0]
    each = models({**method, "displacement_form": "each_step"}, name="adamw")[0]
    np.testing.assert_allclose(each, once, atol=1e-12)
    assert np.abs(models(method, name="adam")[0] - once).max() > 1e-3


def test_decay_beside_the_gradients_is_in_no_variate():
    """By hand: Adam's means are of grad f_i + c - c_i, where c and c_i are gradients without the decay."""
    method = {**WORK, "weight_decay": 0.5}
    task = {"name": "quadratic", "hessians": HESSIANS, "centers": [[0.0, 0.0]] * 3}
    document = {"task": task, "rounds": 4, "init": [3.0, -2.0], "report": ["params"], "clients_per_round": 1}
    document |= {"client": {"name": "adamw"}}
    kept = {"name": "scaffold", "variates": "stored", "variate_update": "gradient", "displacement_source": "full"}
    found = [line["params"] for line in run({**document, "method": {**kept, **method}})]
    x, own = np.array([3.0, -2.0]), np.zeros((3, 2))
    for number in range(4):
        client = int(randomness.cohort(0, number, 3, 1)[0])
        correction = own.mean(0) - own[client]
        y, first, second = x, 0.0, 0.0
        for step in range(1, STEPS + 1):
            slope = np.array(HESSIANS[client]) @ y + correction
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            scaled = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            y = y - LR * (scaled + 0.5 * y)
        own[client] = np.array(HESSIANS[client]) @ x
        x = x + SERVER_LR / LR * (y - x)
        np.testing.assert_allclose(found[number + 1], x, rtol=0, atol=1e-12)
