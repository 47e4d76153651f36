"""Optimizers of clients, the server's branch and the merge in mixed federated learning, against loops written out."""

import numpy as np
import pytest

from trainers.engine.pack import Pack
from trainers.errors import SpecError
from trainers.spec import parse

from .mixed import DIGITS, INIT, METHODS, WEIGHTS, models, problem, train

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


class ClientAdam(Adam):
    def __init__(self):
        super().__init__(beta2=0.999, epsilon=1e-8)


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
    ({"central_optimizer": "sgd", "central_momentum": 0.6}, lambda: HeavyBall(0.6), lambda: HeavyBall(0.0), 1.0),
    ({"central_optimizer": "adam"}, Adam, lambda: HeavyBall(0.0), 1.0),
    ({"central_optimizer": "adam", "central_momentum": 0.5}, lambda: Adam(0.5), lambda: HeavyBall(0.0), 1.0),
    ({"merge_momentum": 0.4, "merge_lr": 0.7}, lambda: HeavyBall(0.0), lambda: HeavyBall(0.4), 0.7),
    ({"merge_optimizer": "adam", "merge_epsilon": 0.01, "merge_lr": 0.1}, lambda: HeavyBall(0.0), Adam, 0.1),
    ({"merge_optimizer": "adam", "central_optimizer": "adam", "merge_lr": 0.1}, Adam, Adam, 0.1),
]


@pytest.mark.parametrize("name", BRANCHED)
@pytest.mark.parametrize(("given", "central", "merge", "merge_lr"), RULES)
def test_rounds_are_algorithm_1_with_other_optimizers(name, given, central, merge, merge_lr):
    central, merge = central(), merge()
    central.epsilon = given.get("central_epsilon", 1e-5)
    merge.epsilon = given.get("merge_epsilon", 1e-5)
    found = models(name, 12, central_lr=0.06, central_steps=3, **given)
    np.testing.assert_allclose(found, walked(name, central, merge, merge_lr=merge_lr), rtol=0, atol=1e-12)


CLIENTS = [
    ({"client_optimizer": "momentum", "client_momentum": 0.7}, lambda: HeavyBall(0.7)),
    ({"client_optimizer": "adam"}, ClientAdam),
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


def test_clients_send_their_gradients_where_their_steps_do_not_tell_them():
    for given, sent in (({}, 1), ({"clip_norm": 1.0}, 1), ({"client_optimizer": "adam"}, 2)):
        line = train("two_way_transfer", 3, **given)[-1]
        assert (line["bytes_down"], line["bytes_up"]) == (3 * 2 * 96, 3 * sent * 96)
        assert train("one_way_transfer", 3, **given)[-1]["bytes_up"] == 3 * 96


@pytest.mark.parametrize("name", BRANCHED)
def test_plain_sgd_by_the_long_way_is_the_same(name, monkeypatch):
    from trainers.engine import branch

    quick = models(name, 10, central_lr=0.06, central_steps=3)
    monkeypatch.setattr(branch.Rule, "plain", False)
    np.testing.assert_allclose(models(name, 10, central_lr=0.06, central_steps=3), quick, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", BRANCHED)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "yogi", "adagrad"])
def test_members_neighbours_and_restarts_change_nothing(name, optimizer):
    own = {"central_optimizer": optimizer, "merge_optimizer": optimizer, "central_lr": 0.02, "merge_lr": 0.3}
    own |= {"central_momentum": 0.3, "merge_momentum": 0.2}
    method = {"name": name, "client_lr": 0.05, "server_lr": 0.05, "local_steps": 3, **own}
    document = {"task": {**problem()[0], "gradient_noise": 0.2}, "method": method, "rounds": 8, "batch_size": 2}
    document |= {"clients_per_round": 3, "eval_every": 1, "report": ["params"]}
    other = {"central_lr": 0.01, "central_momentum": 0.0, "merge_momentum": 0.0}
    members = [{"local_steps": 2, "central_steps": 5}, {"client_lr": 80.0, "server_lr": 80.0}, other]

    def paths(lines, member):
        return [line["params"] for line in lines if line.get("member", 0) == member]

    spec = parse({**document, "members": members})
    whole = Pack.from_spec(spec).advance()
    for number in (0, 2):
        alone = Pack.from_spec(parse({**document, "method": {**method, **members[number]}})).advance()
        np.testing.assert_allclose(paths(whole, number), paths(alone, 0), rtol=0, atol=1e-10)
    pack = Pack.from_spec(spec)
    lines = pack.advance(3)
    lines += Pack.restore(spec, pack.to_bytes()).advance()
    assert [paths(lines, number) for number in range(3)] == [paths(whole, number) for number in range(3)]


def test_settings_are_the_optimizers_own_where_left_out():
    document = {"task": problem(weights=WEIGHTS)[0], "rounds": 1}
    method = {"name": "parallel_training", "client_lr": 0.1, "tied": True, "local_steps": 2}
    plain = parse({**document, "method": method}).method.member(0)
    assert (plain["central_momentum"], plain["merge_momentum"]) == (0.0, 0.0)
    assert (plain["central_epsilon"], plain["merge_epsilon"]) == (None, None)
    given = {**method, "central_optimizer": "yogi", "merge_optimizer": "adagrad"}
    spec = parse({**document, "method": given})
    other = spec.method.member(0)
    assert (other["central_momentum"], other["central_epsilon"], other["merge_momentum"]) == (0.9, 1e-5, 0.0)
    assert parse(spec.canonical).canonical == spec.canonical


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"central_optimizer": "lamb"}, "method.central_optimizer must be one of sgd, adam, yogi, adagrad, got"),
        ({"central_epsilon": 0.1}, "method.central_epsilon must be left out for sgd, which has none, got"),
        ({"merge_epsilon": 0.2}, "method.merge_epsilon must be left out for sgd"),
        ({"merge_momentum": 1.0}, "method.merge_momentum must be in [0, 1), got"),
    ],
)
def test_wrong_optimizers_say_what_to_do(wrong, message):
    method = {"name": "two_way_transfer", "client_lr": 0.1, "tied": True, "local_steps": 2, **wrong}
    with pytest.raises(SpecError) as caught:
        parse({"task": problem()[0], "method": method, "rounds": 1})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", BRANCHED)
def test_adam_at_the_server_learns_digits(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    own = {"central_optimizer": "adam", "central_lr": 0.01, "merge_optimizer": "sgd", "merge_momentum": 0.5}
    line = train(name, 40, DIGITS, client_lr=0.2, server_lr=0.2, local_steps=5, merge="mean", **own, trial=trial)[-1]
    assert line["test_accuracy"] > 0.85


@pytest.mark.parametrize("name", BRANCHED)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_pack_may_mix_trials_with_and_without_a_central_lr(name, optimizer):
    """Left out it is server_lr, through the schedule, also beside trials that have one of their own, 0 included."""
    given = {"central_optimizer": optimizer, "central_epsilon": 1.0} if optimizer == "adam" else {}
    schedule = {"name": "plateau", "window": 1, "cooldown": 1, "min_delta": 100.0, "server_decay": 0.5}
    rates = [None, 0.02, 0.0]
    together = train(name, 5, **given, trial={"schedule": schedule, "members": [{"central_lr": one} for one in rates]})
    for member, rate in enumerate(rates):
        alone = train(name, 5, **given, central_lr=rate, trial={"schedule": schedule})
        mine = [line["params"] for line in together if line["member"] == member]
        np.testing.assert_allclose(mine, [line["params"] for line in alone], rtol=0, atol=1e-14)
    assert together[-1]["server_lr"] < 0.04
