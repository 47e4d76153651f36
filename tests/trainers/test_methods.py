"""The contract of a method, run over every method, server optimizer and schedule that is found in the folders."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.hyperparameters import describe, withdrawals
from trainers.registry import methods, optimizers, schedules
from trainers.trial.document import parse

from .documents import SERVERS

USUAL = {
    "client_lr": 0.04,
    "server_lr": 0.05,
    "local_steps": 3,
    "prox": 0.5,
    "displacement": 0.1,
    "gradient_weights": [1.0, 0.5, 2.0],
    "strong_convexity": 1.0,
    "smoothness": 3.0,
}
IGNORED = {"wall_seconds", "member"}


def part(module, name, member=0):
    """Settings for all required hyperparameters of a module, and for all traced ones of further members."""
    found = {"name": name} if member == 0 else {}
    for item in describe(module.Hyper):
        if item.required or (item.traced and item.default is not None):
            value = USUAL.get(item.name, item.default if not item.required else None)
            if value is None:
                value = item.choices[0] if item.choices else max(item.low or 0, 1)
            if item.traced and member and item.kind in ("float", "int"):
                value = value + member if item.kind == "int" else value * (1 - 0.2 * member)
                if item.low is not None:
                    value = max(value, item.low)
            if item.traced and member and item.kind == "floats":
                value = [*value, 0.5][-1 - member :]
            found[item.name] = value
    return found


def cohort_size(method):
    return methods()[method].CLIENTS_PER_ROUND or 4


def with_central(method, task):
    """The task, with data of the server for a method that trains on them."""
    if not methods()[method].CENTRAL:
        return task
    own = {"hessian": np.diag([1.0, 2.0, 3.0]).tolist(), "center": [0.0, 0.0, 0.0]}
    return {**task, "central": own if task["name"] == "quadratic" else {"fraction": 0.1}}


def quadratic(**more):
    return {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3, "gradient_noise": 0.1, **more}


def document(method, server="sgd", schedule="constant", task=None, **changes):
    return {
        "task": with_central(method, task or quadratic()),
        "method": part(methods()[method], method),
        "server": part(optimizers()[server], server),
        "schedule": part(schedules()[schedule], schedule),
        "clients_per_round": cohort_size(method),
        "batch_size": 2,
        "dtype": "float64",
        "rounds": 6,
        "eval_every": 1,
        "seed": 5,
        **changes,
    }


def member_settings(given, number):
    """Other values of every traced hyperparameter."""
    found = part(methods()[given["method"]["name"]], given["method"]["name"], number)
    for kind, registry in (("server", optimizers), ("schedule", schedules)):
        own = part(registry()[given[kind]["name"]], given[kind]["name"], number)
        found.update({f"{kind}.{name}": value for name, value in own.items()})
    return found


def train(given):
    return Pack.from_spec(parse(given)).advance()


def same(lines, others, tolerance=1e-10):
    assert len(lines) == len(others)
    for line, other in zip(lines, others, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - IGNORED:
            wanted = other[name] if other[name] is None else pytest.approx(other[name], rel=tolerance, abs=tolerance)
            assert line[name] == wanted, (line["round"], name)


def alone(given, settings):
    """The document of one member."""
    single = {key: dict(value) if isinstance(value, dict) else value for key, value in given.items()}
    for name, value in settings.items():
        kind, _, bare = name.rpartition(".")
        single[kind or "method"][bare] = value
    return single


# Every method meets every server optimizer and every schedule, and these each other; not all triples.
ALL = [
    (method, SERVERS[turn % len(SERVERS)], list(schedules())[(number + turn) % len(schedules())])
    for number, method in enumerate(methods())
    for turn in range(max(len(SERVERS), len(schedules())))
]


def test_everything_meets():
    assert {triple[:2] for triple in ALL} == set(itertools.product(methods(), SERVERS))
    assert {triple[1:] for triple in ALL} == set(itertools.product(SERVERS, schedules()))
    assert {triple[::2] for triple in ALL} == set(itertools.product(methods(), schedules()))


@pytest.mark.parametrize(("method", "server", "schedule"), ALL)
def test_a_trial_is_the_same_alone_and_in_a_pack(method, server, schedule):
    given = document(method, server, schedule)
    settings = [member_settings(given, number) for number in (1, 2)]
    lines = train({**given, "members": [{}, *settings]})
    for number, setting in enumerate([{}, *settings]):
        same([line for line in lines if line["member"] == number], train(alone(given, setting)))


REAL = {
    "softmax": "softmax",
    "mlp": {"name": "mlp", "hidden": [6], "dropout": 0.2},
    "cnn": {"name": "cnn", "filters": [2], "kernel": 3, "dense": 5, "dropout": 0.2, "crop": 1},
}


@pytest.mark.parametrize("model", REAL)
@pytest.mark.parametrize("method", methods())
def test_a_trial_is_the_same_alone_and_in_a_pack_on_real_data(method, model):
    task = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}, "model": REAL[model]}
    for batch_size in (5, None):
        given = document(method, task=task, batch_size=batch_size, rounds=3)
        settings = [member_settings(given, number) for number in (1, 2)]
        lines = train({**given, "members": [*settings, {}]})
        for number, setting in enumerate([*settings, {}]):
            same([line for line in lines if line["member"] == number], train(alone(given, setting)))


@pytest.mark.parametrize("method", methods())
def test_a_round_leaves_its_input_alone_and_pads_zero(method):
    pack = Pack.from_spec(parse({**document(method), "init": [1.0, -2.0, 0.5]}))
    pack.advance(1)
    for _ in range(3):
        before = pack._lanes[0].now.state
        copies = {name: held.clone() for name, held in tensors(before).items()}
        pack.advance(1)
        assert all(torch.equal(held, copies[name]) for name, held in tensors(before).items())
        after = pack._lanes[0].now.state
        assert not torch.equal(after.params, before.params)
        assert after.params.isfinite().all()
        assert (after.params[..., 3:] == 0).all()
        assert after.params.shape == before.params.shape


def tensors(state):
    return {
        "params": state.params,
        **state.optimizer_memory["server"],
        **{f"memory.{name}": held for name, held in state.memory.items()},
    }


@pytest.mark.parametrize("method", methods())
def test_lines_are_finite_and_counted(method):
    lines = train(document(method))
    assert [line["round"] for line in lines] == list(range(7))
    assert lines[0]["train_loss"] is None
    assert lines[0]["update_norm"] is None
    counters = ("exchanges", "bytes_down", "bytes_up", "client_gradients")
    assert all(lines[0][name] == 0 for name in counters)
    for earlier, line in itertools.pairwise(lines):
        assert all(np.isfinite(line[name]) for name in ("train_loss", "update_norm", "loss", "distance"))
        # of all clients of the cohort at least one model goes down, and one gradient is taken and goes up
        exchanges = line["exchanges"] - earlier["exchanges"]
        assert exchanges >= 1
        clients = cohort_size(method)
        assert line["bytes_down"] - earlier["bytes_down"] >= exchanges * clients * 3 * 8
        assert line["bytes_up"] - earlier["bytes_up"] >= exchanges * clients * 3 * 8
        assert line["client_gradients"] - earlier["client_gradients"] >= clients
        assert line["diverged"] is False


@pytest.mark.parametrize("method", methods())
def test_the_loss_falls_without_noise(method):
    given = document(method, task=quadratic(gradient_noise=0.0), clients_per_round=None, rounds=40)
    given["init"] = [3.0, -3.0, 3.0]
    lines = train(given)
    assert lines[-1]["loss"] < 0.2 * lines[0]["loss"]


@pytest.mark.parametrize("method", methods())
def test_hyperparameters_say_range_and_meaning(method):
    module = methods()[method]
    described = {item.name: item for item in describe(module.Hyper)}
    assert described.keys() | withdrawals(module.Hyper) == {field.name for field in dataclasses.fields(module.Hyper)}
    assert ("server_lr" in described) != module.TIED
    for item in described.values():
        assert item.doc
        assert item.kind in ("bool", "str", "any") or item.low is not None
    assert "Exchanges:" in module.__doc__
    assert "Source:" in module.__doc__


def limit(one, two, **changes):
    """Two methods that must do the same, in a cohort with noise and with momentum."""
    shared = {"server_lr": 0.05}
    found = []
    for method in (one, two):
        given = document(method["name"], rounds=8, **changes)
        given["method"] = {name: value for name, value in {**shared, **method}.items() if value is not None}
        given["server"] = {"name": "sgd", "momentum": 0.6}
        found.append(train(given))
    same(*found, tolerance=1e-12)


def test_fedprox_without_prox_is_fedavg():
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "fedprox", **work, "prox": 0.0}, {"name": "fedavg", **work})


def test_all_ones_is_fedavg_and_with_prox_fedprox():
    weights = {"client_lr": 0.1, "gradient_weights": [1, 1, 1, 1]}
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "local_update", **weights}, {"name": "fedavg", **work})
    limit({"name": "local_update", **weights, "prox": 0.7}, {"name": "fedprox", **work, "prox": 0.7})
    limit({"name": "reptile", **work}, {"name": "fedavg", **work})


def test_the_last_weight_only_is_fomaml():
    weights = {"client_lr": 0.1, "gradient_weights": [0, 0, 0, 1]}
    limit({"name": "local_update", **weights}, {"name": "fomaml", "client_lr": 0.1, "local_steps": 4})


def test_minibatch_prox_is_fedprox_and_without_prox_reptile():
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "minibatch_prox", **work, "prox": 0.7}, {"name": "fedprox", **work, "prox": 0.7})
    limit({"name": "minibatch_prox", **work, "prox": 0.0}, {"name": "reptile", **work})


def test_lookahead_is_fedavg_with_one_client():
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "lookahead", **work}, {"name": "fedavg", **work}, clients_per_round=1)


def test_local_sgd_is_fedavg_with_tied_rates():
    work = {"client_lr": 0.05, "local_steps": 4}
    limit({"name": "local_sgd", "server_lr": None, **work}, {"name": "fedavg", **work})


@pytest.mark.parametrize("method", ["fedavg", "reptile", "fomaml", "minibatch_sgd", "minibatch_prox"])
def test_one_local_step_is_fedsgd(method):
    one = {"name": method, "client_lr": 0.1, "local_steps": 1}
    if method == "minibatch_sgd":
        one = {"name": method}
    if method == "minibatch_prox":
        one["prox"] = 2.0
    two = {"name": "fedsgd"}
    given = {"rounds": 4}
    lines = [train({**document(m["name"], **given), "method": {"server_lr": 0.05, **m}}) for m in (one, two)]
    for line in itertools.chain(*lines):
        line.pop("client_lr")
    same(*lines, tolerance=1e-12)


@pytest.mark.parametrize("method", ["fedavg", "reptile", "fedprox"])
def test_client_lr_zero_is_a_larger_batch(method):
    more = {"prox": 3.0} if method == "fedprox" else {}
    one = {"name": method, "client_lr": 0.0, "local_steps": 5, **more}
    limit(one, {"name": "fedsgd", "local_steps": 5})


def test_server_lr_equal_to_client_lr_averages_models():
    hessians = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 3.0]]]
    centers = [[1.0, 0.0], [0.0, 2.0]]
    given = {
        "task": {"name": "quadratic", "hessians": hessians, "centers": centers},
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 6},
        "rounds": 1,
        "report": ["params"],
    }
    ends = []
    for hessian, center in zip(np.array(hessians), np.array(centers), strict=True):
        y = np.zeros(2)
        for _ in range(6):
            y = y - 0.1 * hessian @ (y - center)
        ends.append(y)
    assert train(given)[-1]["params"] == pytest.approx(np.mean(ends, 0), abs=1e-14)


def test_weight_decay_pulls_to_zero():
    task = {"name": "quadratic", "hessians": [[[2.0]]], "centers": [[3.0]]}
    for method in ({"name": "fedsgd"}, {"name": "fedavg", "client_lr": 0.1, "local_steps": 5}):
        given = {"task": task, "method": {**method, "server_lr": 0.1, "weight_decay": 1.0}, "rounds": 200}
        line = train({**given, "report": ["params"]})[-1]
        assert line["params"][0] == pytest.approx(2.0 * 3.0 / (2.0 + 1.0), abs=1e-12)


COUNTED = {
    # per round with 4 clients, 3 parameters, 8 bytes: exchanges, bytes down, bytes up, client gradients
    "fedavg": (1, 96, 96, 12),
    "fedprox": (1, 96, 96, 12),
    "reptile": (1, 96, 96, 12),
    "fomaml": (1, 96, 96, 12),
    "local_update": (1, 96, 96, 12),
    "fedsgd": (1, 96, 96, 12),
    "minibatch_sgd": (1, 96, 96, 4),
    "minibatch_prox": (1, 96, 96, 12),
    "local_sgd": (1, 96, 96, 12),
    "fednova": (1, 96, 96, 12),
    "mass": (1, 96, 96, 12),
    "lookahead": (1, 24, 24, 3),
    # gradients first: the model down and a gradient up, then their mean down and a pseudo-gradient up
    "scaffold": (2, 192, 192, 16),
    "fedga": (2, 192, 192, 16),
    "gradalign": (2, 192, 192, 8),
    "linear_scaling": (1, 96, 96, 4),
    "aligned_linear_scaling": (2, 192, 192, 8),
    # a gradient and a product of it, which counts as two; the model and the mean gradient down
    "regularized_gd": (2, 192, 192, 12),
    "feddyn": (1, 96, 96, 12),
    "fedexp": (1, 96, 96, 12),
    # the momentum goes down beside the model, gradients at the model come up beside the work; in mime two a step
    "mimelite": (1, 192, 192, 16),
    "mime": (2, 288, 192, 28),
    # three steps, the gradient after them, and three Hessian products that count as two gradients
    "maml": (1, 96, 96, 40),
    # what the server does with its own data costs no client anything; a correction goes down beside the model
    "parallel_training": (1, 96, 96, 12),
    "one_way_transfer": (1, 192, 96, 12),
    "two_way_transfer": (1, 192, 96, 12),
    # an exchange for every step; and clients that take two gradients a step
    "pooled_training": (3, 288, 288, 12),
    "all_on_client": (1, 96, 96, 24),
}


@pytest.mark.parametrize("method", COUNTED)
def test_costs_of_a_round(method):
    line = train(document(method, rounds=5))[-1]
    found = tuple(line[name] for name in ("exchanges", "bytes_down", "bytes_up", "client_gradients"))
    assert found == tuple(5 * amount for amount in COUNTED[method])


def test_single_precision_halves_the_bytes():
    line = train(document("fedavg", rounds=1, dtype="float32"))[-1]
    assert (line["bytes_down"], line["bytes_up"]) == (48, 48)
