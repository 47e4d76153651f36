"""Optimizers of clients, the server's branch and the merge in mixed federated learning, against loops written out."""

import numpy as np
import pytest

from .methods.mixed import INIT, METHODS, models, problem

BRANCHED = ("parallel_training", "two_way_transfer")


class HeavyBall:
    def __init__(self, momentum):
        self.momentum, self.velocity = momentum, 0.0

    def __call__(self, x, gradient, rate):
        self.velocity = self.momentum * self.velocity + gradient
        return x - rate * self.velocity


class Adam:
    def __init__(self, beta1=0.9, beta2=0.99, epsilon=1e-5):
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.mean, self.square, self.steps = 0.0, 0.0, 0

    def __call__(self, x, gradient, rate):
        self.steps += 1
        self.mean = self.beta1 * self.mean + (1 - self.beta1) * gradient
        self.square = self.beta2 * self.square + (1 - self.beta2) * gradient**2
        mean, square = self.mean / (1 - self.beta1**self.steps), self.square / (1 - self.beta2**self.steps)
        return x - rate * mean / (np.sqrt(square) + self.epsilon)


class Clip:
    """Gradient descent with clipped gradients; what was clipped is what is seen."""

    def __init__(self):
        self.norm = 0.8

    def clipped(self, gradient):
        return gradient * min(1, self.norm / np.linalg.norm(gradient))

    def __call__(self, x, gradient, rate):
        return x - rate * gradient


def plain():
    return HeavyBall(0.0)


def walked(name, central_rule, merge_rule, rounds=12, merge_lr=1.0, weight=0.5, steps=3, client_rule=plain):
    """Algorithms 1 and 2 written out, with all clients and exact gradients."""
    _, hessians, centers, own, center = problem()
    clients = [lambda y, i=i: weight * hessians[i] @ (y - centers[i]) for i in range(4)]
    x, a, b, path = np.array(INIT), np.zeros(3), np.zeros(3), [INIT]
    two = name == "two_way_transfer"
    for _ in range(rounds):
        z, seen = x, []
        if name == "one_way_transfer":
            a, steps = (1 - weight) * own @ (x - center), 0
        for _ in range(steps):
            seen.append((1 - weight) * own @ (z - center))
            z = central_rule(z, seen[-1] + (b if two else 0), 0.06)
        deltas, means = [], []
        for slope in clients:
            y, taken, rule = x, [], client_rule()
            for _ in range(4):
                whole = slope(y) + a
                whole = rule.clipped(whole) if hasattr(rule, "clipped") else whole
                taken.append(whole - a)
                y = rule(y, whole, 0.05)
            deltas.append(-(y - x) / 0.05)
            means.append(np.mean(taken, 0))
        change = (z - x) - 0.04 * np.mean(deltas, 0)
        x = merge_rule(x, -change, merge_lr)
        a, b = (np.mean(seen, 0), np.mean(means, 0)) if two else (a, b)
        path.append(x)
    return np.array(path)


RULES = [
    ({"central": {"name": "sgd", "momentum": 0.6}}, lambda: HeavyBall(0.6), plain, 1.0),
    ({"central": {"name": "momentum", "momentum": 0.6}}, lambda: HeavyBall(0.6), plain, 1.0),
    ({"central": {"name": "adam"}}, Adam, plain, 1.0),
    ({"central": {"name": "adam", "beta1": 0.5}}, lambda: Adam(0.5), plain, 1.0),
    ({"central": {"name": "adam", "beta2": 0.9}}, lambda: Adam(beta2=0.9), plain, 1.0),
    ({"merge": {"name": "sgd", "momentum": 0.4}, "merge_lr": 0.7}, plain, lambda: HeavyBall(0.4), 0.7),
    ({"merge": {"name": "adam", "epsilon": 0.01}, "merge_lr": 0.1}, plain, lambda: Adam(epsilon=0.01), 0.1),
    ({"merge": {"name": "adam"}, "central": {"name": "adam"}, "merge_lr": 0.1}, Adam, Adam, 0.1),
]


@pytest.mark.parametrize("name", BRANCHED)
@pytest.mark.parametrize(("given", "central", "merge", "merge_lr"), RULES)
def test_rounds_are_algorithm_1_with_other_optimizers(name, given, central, merge, merge_lr):
    found = models(name, 12, central_lr=0.06, central_steps=3, **given)
    np.testing.assert_allclose(found, walked(name, central(), merge(), merge_lr=merge_lr), rtol=0, atol=1e-12)


CLIENTS = [
    ({"client": {"name": "momentum", "momentum": 0.7}}, lambda: HeavyBall(0.7)),
    ({"client": {"name": "adam"}}, lambda: Adam(beta2=0.999, epsilon=1e-8)),
    ({"clip_norm": 0.8}, Clip),
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weight", [0.5, 0.8])
@pytest.mark.parametrize(("given", "rule"), CLIENTS)
def test_client_optimizers_step_along_the_weighted_gradients(name, weight, given, rule):
    branch = {} if name == "one_way_transfer" else {"central_lr": 0.06, "central_steps": 3}
    found = models(name, 12, federated_weight=weight, **branch, **given)
    wanted = walked(name, plain(), plain(), weight=weight, client_rule=rule)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", BRANCHED)
def test_plain_sgd_by_the_long_way_is_the_same(name, monkeypatch):
    from trainers.engine.rounds.role_optimizer import RoleOptimizer

    quick = models(name, 10, central_lr=0.06, central_steps=3)
    monkeypatch.setattr(RoleOptimizer, "plain", False)
    np.testing.assert_allclose(models(name, 10, central_lr=0.06, central_steps=3), quick, rtol=0, atol=1e-13)
