"""Mixed federated learning: closed forms, identities and limits, through whole trials."""

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds import mixed
from trainers.theory.rounds.affine import with_server
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import round_map
from trainers.trial.document import parse

from .mixed import DIGITS, INIT, METHODS, WEIGHTS, halved, models, problem, scalar, train


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("weight", [0.5, 0.2])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_rounds_are_the_closed_forms(weights, weight, momentum):
    given, hessians, centers, own, center = problem(weights=weights)
    held = client_quadratics(hessians, centers, np.full(4, 0.25) if weights is None else np.array(weights))
    clients, central = halved(held, central_quadratic(own, center), weight)
    trial = {"server": {"name": "sgd", "momentum": momentum}}
    local = {"client_lr": 0.05, "local_steps": 4}
    branch = {"central_lr": 0.07, "central_steps": 3, "merge_lr": 0.8}
    for name, more in (("parallel_training", branch), ("one_way_transfer", {}), ("two_way_transfer", branch)):
        wanted = with_server(getattr(mixed, name)(clients, central, **local, **more), 0.04, momentum).after(INIT, 25)
        found = models(name, 25, given, federated_weight=weight, **more, trial=trial)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
        if name != "one_way_transfer":
            more = {**more, "merge_lr": 1.6}
            found = models(name, 25, given, central_weight=1 - weight, merge_by="mean", **more, trial=trial)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("name", [*METHODS, "all_on_client", "pooled_training"])
def test_weight_decay_is_a_part_of_the_clients_losses(name, weight):
    given, hessians, centers, own, center = problem()
    clients, central = client_quadratics(hessians, centers), central_quadratic(own, center)
    method = {"federated_weight": weight, "weight_decay": 0.4, "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4}
    starts = [{}, {"warm_start": True}] if name == "two_way_transfer" else [{}]
    for more in starts:
        wanted = round_map({"name": name, **method, **more}, clients, central=central).after(INIT, 10)
        np.testing.assert_allclose(models(name, 10, given, **method, **more), wanted, rtol=0, atol=1e-10)


def test_defaults_follow_the_papers_ties():
    for name in ("parallel_training", "two_way_transfer"):
        spec = parse(
            {
                "task": problem()[0],
                "method": {"name": name, "client_lr": 0.1, "delta_lr": 0.5, "local_steps": 7},
                "rounds": 1,
                "members": [{}, {"local_steps": 2, "federated_weight": 0.7}],
            }
        )
        assert spec.method.values["central_steps"] == (7, 2)
        assert spec.method.values["federated_weight"] == (0.5, 0.7)
        assert spec.method.values["central_weight"] == (0.5, pytest.approx(0.3))
        assert parse(spec.canonical).canonical == spec.canonical
        whole = models(name, 4, delta_lr=0.5, server_lr=None, local_steps=7)
        same = models(
            name, 4, delta_lr=0.5, server_lr=None, local_steps=7, central_lr=0.025, central_steps=7, merge_lr=1
        )
        np.testing.assert_array_equal(whole, same)
        tied = models(name, 4, server_lr=None, tied=True)
        np.testing.assert_array_equal(tied, models(name, 4, server_lr=0.05, central_lr=0.05))
    for name in METHODS:
        method = {"name": name, "client_lr": 0.1, "tied": True, "local_steps": 2}
        assert parse({"task": DIGITS, "method": method, "rounds": 1}).weighting == "examples"
        assert parse({"task": DIGITS, "method": method, "rounds": 1, "weighting": "uniform"}).weighting == "uniform"
        assert parse({"task": problem()[0], "method": method, "rounds": 1}).weighting == "uniform"


def test_one_local_step_makes_them_one_method():
    one = {"local_steps": 1, "client_lr": 0.05, "server_lr": 0.05}
    parallel = models("parallel_training", 30, **one)
    np.testing.assert_allclose(parallel, models("one_way_transfer", 30, **one), rtol=0, atol=1e-14)
    _, hessians, centers, own, center = problem()

    def slope(x):
        return 0.5 * np.einsum("ijk,ik->j", hessians, x - centers) / 4 + 0.5 * own @ (x - center)

    x, before, wanted = np.array(INIT), np.zeros(3), [INIT]
    for _ in range(30):
        now = slope(x)
        x, before = x - 0.05 * (now + before), now
        wanted.append(x)
    np.testing.assert_allclose(models("two_way_transfer", 30, **one), wanted, rtol=0, atol=1e-14)


def test_noise_is_the_same_in_both_at_one_local_step():
    given = {**problem()[0], "gradient_noise": 0.5}
    one = {"given": given, "local_steps": 1, "server_lr": 0.05, "trial": {"batch_size": 3, "clients_per_round": 2}}
    parallel = models("parallel_training", 12, **one)
    np.testing.assert_allclose(parallel, models("one_way_transfer", 12, **one), rtol=0, atol=1e-13)
    assert np.abs(parallel - models("parallel_training", 12, **{**one, "given": problem()[0]})).max() > 1e-3


def test_parallel_training_ends_beside_the_minimizer():
    given, hessians, centers, own, center = problem(equal=True)
    a, c, p, q = hessians[0] / 2, own / 2, centers.mean(0), center
    best = np.linalg.solve(a + c, a @ p + c @ q)
    eye = np.eye(3)
    biases = []
    for rate, steps in ((0.05, 4), (0.01, 4), (0.05, 1)):
        qa, qc = (eye - np.linalg.matrix_power(eye - rate * held, steps) for held in (a, c))
        wanted = np.linalg.solve(qa + qc, qa @ p + qc @ q)
        found = models("parallel_training", 900, given, client_lr=rate, server_lr=rate, local_steps=steps)[-1]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
        biases.append(found - best)
    assert np.linalg.norm(biases[0]) > 1e-2
    first = 0.01 * 3 / 2 * np.linalg.solve(a + c, (a - c) @ a @ (best - p))
    assert np.linalg.norm(biases[1] - first) < 0.05 * np.linalg.norm(first)
    assert np.linalg.norm(biases[2]) < 1e-12


@pytest.mark.parametrize("name", METHODS[1:])
def test_transfers_end_at_the_minimizer_of_equal_clients(name):
    for equal, steps in ((True, 6), (False, 1)):
        given, hessians, centers, own, center = problem(equal=equal)
        pull = np.einsum("ijk,ik->j", hessians, centers) / 4 + own @ center
        best = np.linalg.solve(hessians.mean(0) + own, pull)
        found = models(name, 500, given, local_steps=steps, server_lr=0.05)
        np.testing.assert_allclose(found[-1], best, rtol=0, atol=1e-12)


def test_memories_of_two_way_transfer_end_at_the_gradients():
    given, hessians, centers, own, center = problem(equal=True)
    document = {
        "task": given,
        "method": {"name": "two_way_transfer", "client_lr": 0.05, "server_lr": 0.05},
        "rounds": 800,
    }
    document["method"]["local_steps"] = 3
    pack = Pack.from_spec(parse(document))
    pack.advance()
    x = pack._lanes[0].now.state.params[0, 0, :3].numpy()
    memory = {key: held[0, 0, :3].numpy() for key, held in pack._lanes[0].now.state.memory.items() if key != "begun"}
    np.testing.assert_allclose(memory["central_correction"], own @ (x - center) / 2, rtol=0, atol=1e-12)
    wanted = np.einsum("ijk,ik->j", hessians, x - centers) / 8
    np.testing.assert_allclose(memory["federated_correction"], wanted, rtol=0, atol=1e-12)


def test_one_way_transfer_diverges_where_the_server_bends_more():
    # losses 2 and 6 have the curvatures a = 1 and c = 3 with weights 1/2: stable at 1 step, not from 2 on
    given = scalar([2.0], [1.0], 6.0, 0.0)
    for rate, steps, stable in ((0.3, 1, True), (0.3, 2, False), (0.28, 2, True), (0.3, 5, False)):
        assert (4 * (1 - (1 - rate) ** steps) < 2) == stable
        found = models(
            "one_way_transfer", 80, given, client_lr=rate, server_lr=rate, local_steps=steps, trial={"init": [2.0]}
        )
        assert (abs(found[-1, 0] - 0.25) < abs(found[0, 0] - 0.25)) == stable


def test_two_way_transfer_has_half_the_stable_step():
    given = scalar([2.0], [1.0], 6.0, 0.0)
    for name, merge, limit in (
        ("two_way_transfer", "sum", 0.25),
        ("two_way_transfer", "mean", 0.5),
        ("parallel_training", "sum", 0.5),
    ):
        for rate, stable in ((0.97 * limit, True), (1.03 * limit, False)):
            found = models(
                name, 300, given, client_lr=rate, server_lr=rate, local_steps=1, merge_by=merge, trial={"init": [2.0]}
            )
            assert (abs(found[-1, 0] - 0.25) < abs(found[0, 0] - 0.25)) == stable


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("task", [None, DIGITS])
def test_all_weight_on_the_clients_is_fedavg(name, task):
    trial = {"batch_size": 4, "clients_per_round": 3, "weighting": "uniform"}
    if task is None:
        task = {**problem()[0], "gradient_noise": 0.3}
    more = {"central_lr": 0.0} if name == "two_way_transfer" else {}
    fedavg = models("fedavg", 5, task, trial=trial)
    found = models(name, 5, task, federated_weight=1, **more, trial=trial)
    np.testing.assert_allclose(found, fedavg, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", METHODS)
def test_no_weight_on_the_clients_is_training_on_the_server(name):
    given, _, _, own, center = problem()
    found = models(name, 3, given, federated_weight=0, server_lr=0.05, local_steps=2)
    x, a, wanted = np.array(INIT), np.zeros(3), [INIT]
    for _ in range(3):
        first = own @ (x - center)
        second = own @ (x - 0.05 * first - center)
        moved = {"parallel_training": first + second, "one_way_transfer": 2 * first}
        moved["two_way_transfer"] = first + second + 2 * a
        x, a = x - 0.05 * moved[name], (first + second) / 2
        wanted.append(x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_warm_start_begins_with_the_gradients():
    given, hessians, centers, own, center = problem()
    shared = {"server_lr": 0.05, "local_steps": 1}
    lines = train("two_way_transfer", 2, given, warm_start=True, **shared)
    step = np.einsum("ijk,ik->j", hessians, INIT - centers) / 8 + own @ (INIT - center) / 2
    np.testing.assert_allclose(lines[1]["params"], INIT - 2 * 0.05 * step, rtol=0, atol=1e-14)
    assert [line["exchanges"] for line in lines] == [0, 2, 3]
    assert [line["bytes_down"] for line in lines] == [0, 2 * 96, 4 * 96]
    assert [line["bytes_up"] for line in lines] == [0, 2 * 96, 3 * 96]
    assert [line["client_gradients"] for line in lines] == [0, 8, 12]


def test_the_calculator_knows_them_by_the_same_names():
    given, hessians, centers, own, center = problem()
    held, central = client_quadratics(hessians, centers, np.full(4, 0.25)), central_quadratic(own, center)
    for name in METHODS:
        branch = {} if name == "one_way_transfer" else {"merge_by": "mean", "central_steps": 2}
        method = {
            "name": name,
            "client_lr": 0.05,
            "server_lr": 0.04,
            "local_steps": 3,
            "federated_weight": 0.3,
            **branch,
        }
        wanted = round_map(method, held, None, central).after(INIT, 10)
        np.testing.assert_allclose(models(given=given, rounds=10, **method), wanted, rtol=0, atol=1e-10)
