"""Mixed federated learning: closed forms, identities, limits, the server's data and costs, through whole trials."""

import numpy as np
import pytest
import torch

from trainers.engine import central as engine
from trainers.engine.pack import Pack
from trainers.errors import SpecError
from trainers.spec import parse
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds import mixed
from trainers.theory.rounds.affine import with_server
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import round_map

METHODS = ("parallel_training", "one_way_transfer", "two_way_transfer")
INIT = [2.0, -1.0, 0.5]
WEIGHTS = [0.1, 0.4, 0.3, 0.2]
DIGITS = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}, "central": {"fraction": 0.1}}


def hessian(generator, dimension=3, low=0.5, high=4.0):
    basis = np.linalg.qr(generator.standard_normal((dimension, dimension)))[0]
    held = basis @ np.diag(generator.uniform(low, high, dimension)) @ basis.T
    return (held + held.T) / 2


def problem(clients=4, equal=False, weights=None, seed=3):
    """(document, clients' hessians, centers, the server's hessian, center)."""
    generator = np.random.default_rng(seed)
    hessians = np.array([hessian(generator) for _ in range(clients)])
    if equal:
        hessians = np.repeat(hessians[:1], clients, 0)
    centers, own, center = generator.standard_normal((clients, 3)), hessian(generator), generator.standard_normal(3)
    document = {
        "name": "quadratic",
        "hessians": hessians.tolist(),
        "centers": centers.tolist(),
        "central": {"hessian": own.tolist(), "center": center.tolist()},
        **({} if weights is None else {"client_weights": weights}),
    }
    return document, hessians, centers, own, center


def train(name, rounds=1, given=None, **changes):
    """Report lines; changes of the method by its names, of the trial under `trial`."""
    trial = changes.pop("trial", {})
    document = {
        "task": given or problem()[0],
        "method": {"name": name, "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4, **changes},
        "rounds": rounds,
        "dtype": "float64",
        "init": INIT if given is None or given["name"] == "quadratic" else None,
        "report": ["params"],
        **trial,
    }
    document["method"] = {key: value for key, value in document["method"].items() if value is not None}
    return Pack.from_spec(parse(document)).advance()


def models(*arguments, **more):
    """(rounds + 1, parameters)."""
    return np.array([line["params"] for line in train(*arguments, **more)])


def scalar(hessians, centers, own, center):
    return {
        "name": "quadratic",
        "hessians": [[[value]] for value in hessians],
        "centers": [[value] for value in centers],
        "central": {"hessian": [[own]], "center": [center]},
    }


def halved(clients, central, weight=0.5):
    """The losses of the theory, weights inside."""
    scaled = client_quadratics(weight * clients.hessians, clients.centers, clients.weights)
    return scaled, central_quadratic((1 - weight) * central.hessian, central.center)


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
            found = models(name, 25, given, central_weight=1 - weight, merge="mean", **more, trial=trial)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


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
    x = pack._now.state.params[0, 0, :3].numpy()
    memory = {key: held[0, 0, :3].numpy() for key, held in pack._now.state.memory.items() if key != "begun"}
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
                name, 300, given, client_lr=rate, server_lr=rate, local_steps=1, merge=merge, trial={"init": [2.0]}
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


def test_costs_leave_the_server_out():
    found = {
        name: [
            train(name, 3, trial={"clients_per_round": 2})[-1][key]
            for key in ("exchanges", "bytes_down", "bytes_up", "client_gradients")
        ]
        for name in METHODS
    }
    assert found["parallel_training"] == [3, 3 * 2 * 24, 3 * 2 * 24, 3 * 2 * 4]
    assert found["one_way_transfer"] == [3, 2 * 3 * 2 * 24, 3 * 2 * 24, 3 * 2 * 4]
    assert found["two_way_transfer"] == found["one_way_transfer"]


def central_side(batch_size, given=DIGITS):
    spec = parse(
        {
            "task": given,
            "method": {"name": "parallel_training", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2},
            "rounds": 1,
            "batch_size": batch_size,
            "dtype": "float64",
            "seed": 4,
            "clients_per_round": 3,
        }
    )
    pack = Pack.from_spec(spec)
    return pack, pack._central


def test_central_batches_are_of_the_server_alone():
    pack, held = central_side(5)
    inputs = held._model.inputs
    assert len(inputs) == held._model.examples.sum() == 143  # a tenth of 1437, rounded label by label
    one = held.batches(0, None).batch(0, 1)[0].data
    assert next(iter(one.values())).shape[:2] == (1, 15)  # of 3 clients with 5 examples each
    assert next(iter(held.batches(0, 7).batch(0, 1)[0].data.values())).shape[:2] == (1, 7)
    assert held.batches(0, None).always_full is False
    assert central_side(None)[1].batches(0, None).always_full is True
    full = held.batches(0, None).full()[0].data
    assert next(iter(full.values())).shape[:2] == (1, 143)

    def drawn(round_index, step):
        batches = held.batches(round_index, None)
        batches.prepare(step + 1)
        return next(iter(batches.batch(step, 1)[0].data.values()))

    assert torch.equal(drawn(1, 1), drawn(1, 1))
    assert not torch.equal(drawn(1, 1), drawn(2, 1))
    assert not torch.equal(drawn(1, 1), drawn(1, 0))
    assert pack._source.seed != held.batches(0, None).source.seed


def test_the_central_gradient_is_the_mean_over_batches():
    pack, held = central_side(5)
    alive = np.ones(1, dtype=bool)
    params = torch.randn((1, 1, pack._model.layout.size), dtype=torch.float64, generator=torch.manual_seed(0))
    params = pack._model.layout.row(pack._model.layout.vector(params[:, 0])[0]).view(1, 1, -1) * 0.1
    whole = held.at(0, alive).gradient(params, batch_size=15 * 3)
    parts = held.at(0, alive).gradient(params, batches=torch.full((1, 1, 1), 3))
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-14)  # consecutive batches of one shuffled pass
    model, batches = held._model, held.batches(0, None)
    full = model.oracles[pack.plan.oracle].value_and_grad(params, batches.full())[1]
    weight = torch.full((1, 1, 1), 0.25, dtype=torch.float64)
    exact = central_side(None)[1].at(0, alive).gradient(params, weight, batches=torch.full((1, 1, 1), 3))
    np.testing.assert_allclose(exact, 0.25 * full, rtol=0, atol=1e-14)
    assert (whole - full).abs().max() > 1e-3


def test_weighted_losses_refuse_what_they_cannot_hold():
    work = engine.LocalWork(torch.ones(1, 1, 1), torch.ones(1, 1, 1), prox=torch.ones(1, 1, 1))
    with pytest.raises(ValueError, match="without prox and weight_decay"):
        engine.weighted(None, None, torch.ones(1, 1, 1), work, np.ones(1, dtype=bool), torch.ones(1, 1, 1))


@pytest.mark.parametrize("name", METHODS)
def test_passes_over_unequal_clients(name):
    given = {**DIGITS, "clients": 5}
    needed = "central_batch_size" if name == "one_way_transfer" else "central_steps"
    trial = {"batch_size": 20}
    lines = train(name, 3, given, local_epochs=1, local_steps=None, **{needed: 6}, trial=trial)
    sizes = parse({"task": given, "method": {"name": "fedsgd", "server_lr": 1}, "rounds": 1}).task.examples
    assert lines[-1]["client_gradients"] == 3 * (-(-sizes // 20)).sum()
    with pytest.raises(SpecError, match=rf"^method\.{needed} must be given where clients have local_epochs, got none"):
        train(name, 3, given, local_epochs=1, local_steps=None, trial=trial)


@pytest.mark.parametrize("name", METHODS)
def test_digits_with_a_tenth_of_the_examples_at_the_server(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    merge = {"merge": "mean"} if name == "two_way_transfer" else {}
    line = train(name, 40, DIGITS, client_lr=0.3, server_lr=0.3, local_steps=5, **merge, trial=trial)[-1]
    assert line["test_accuracy"] > 0.9
    assert line["exchanges"] == 40


@pytest.mark.parametrize("name", METHODS)
def test_hand_written_and_module_oracles_agree(name):
    given = {**DIGITS, "clients": 4, "model": {"name": "mlp", "hidden": [5]}}
    document = {
        "task": given,
        "method": {"name": name, "client_lr": 0.2, "server_lr": 0.2, "local_steps": 3},
        "rounds": 2,
        "dtype": "float64",
        "batch_size": 6,
        "report": ["params"],
    }
    first = Pack.from_spec(parse(document))
    found = []
    for oracle in first._model.oracles:
        pack = Pack.from_spec(parse(document), plan=type(first.plan)(**{**first.plan.to_json(), "oracle": oracle}))
        found.append(pack.advance()[-1]["params"])
    assert len(found) > 1
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-10)


BAD = [
    ({"task": {**DIGITS, "central": None}}, "task.central must be given for NAME, which trains on data of the server"),
    ({"task": {"name": "quadratic", "problem": "two_clients"}}, "task.central must be given for NAME"),
    (
        {"method": {"federated_weight": 0.6, "central_weight": 0.6}},
        "method.central_weight must be 1 - federated_weight, got",
    ),
    ({"method": {"federated_weight": 1.5}}, "method.federated_weight must be in [0, 1], got"),
    ({"method": {"central_batch_size": 0}}, "method.central_batch_size must be at least 1, got"),
    ({"method": {"weight_decay": 0.1}}, 'unknown key "weight_decay" in method: known are'),
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input(name, wrong, message):
    document = {"task": wrong.get("task", DIGITS), "rounds": 1}
    document["method"] = {"name": name, "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2, **wrong.get("method", {})}
    with pytest.raises(SpecError) as caught:
        parse(document)
    assert str(caught.value).startswith(message.replace("NAME", name))


BAD_CENTRAL = [
    (3, "task.central must be like"),
    ({"hessian": [[1.0]]}, "task.central.center must be given"),
    (
        {"hessian": [[1.0]], "center": [0.0], "centre": [0.0]},
        'unknown key "centre" in task.central: did you mean center?',
    ),
    ({"hessian": [[1.0]], "center": [0.0]}, "task.central.hessian must be 2 x 2 as the clients' hessians, got 1 x 1"),
    ({"hessian": [[1.0, 0], [0, -1]], "center": [0.0, 0]}, "task.central.hessian must be positive definite, got"),
    ({"hessian": [[1.0, 1], [0, 2]], "center": [0.0, 0]}, "task.central.hessian must be symmetric, got"),
    ({"hessian": [[1.0, 0], [0, 1]], "center": [0.0]}, "task.central.center must be a list of 2 numbers, got"),
]


@pytest.mark.parametrize(("central", "message"), BAD_CENTRAL)
def test_bad_central_quadratics(central, message):
    task = {"name": "quadratic", "hessians": [[[1.0, 0.0], [0.0, 1.0]]], "centers": [[0.0, 0.0]], "central": central}
    with pytest.raises(SpecError) as caught:
        parse({"task": task, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
    assert str(caught.value).startswith(message)


def test_other_methods_leave_central_data_alone():
    given = problem()[0]
    alone = {key: value for key, value in given.items() if key != "central"}
    np.testing.assert_array_equal(models("fedavg", 4, given), models("fedavg", 4, alone))
    spec = parse({"task": alone, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
    assert "central" not in spec.canonical["task"]


def test_the_calculator_knows_them_by_the_same_names():
    given, hessians, centers, own, center = problem()
    held, central = client_quadratics(hessians, centers, np.full(4, 0.25)), central_quadratic(own, center)
    for name in METHODS:
        branch = {} if name == "one_way_transfer" else {"merge": "mean", "central_steps": 2}
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


@pytest.mark.parametrize("name", METHODS)
def test_a_diverging_neighbour_and_a_restart_change_nothing(name):
    own = {"parallel_training": {"central_batch_size": 9}, "one_way_transfer": {"central_batch_size": 9}}
    method = {"name": name, "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3, **own.get(name, {"warm_start": True})}
    document = {"task": {**problem()[0], "gradient_noise": 0.2}, "method": method, "rounds": 12, "batch_size": 2}
    document |= {"clients_per_round": 3, "eval_every": 1, "seed": 2}
    members = [{"local_steps": 2}, {"client_lr": 60.0, "server_lr": 60.0}, {"federated_weight": 0.8}]

    def losses(lines, member):
        return [line["loss"] for line in lines if line.get("member", 0) == member]

    spec = parse({**document, "members": members})
    whole = Pack.from_spec(spec).advance()
    assert [line["member"] for line in whole if line["diverged"]] == [1]
    assert len(losses(whole, 1)) < 13
    for number in (0, 2):
        alone = Pack.from_spec(parse({**document, "method": {**method, **members[number]}})).advance()
        np.testing.assert_allclose(losses(whole, number), losses(alone, 0), rtol=1e-10)
    for stop in (1, 5):
        pack = Pack.from_spec(spec)
        lines = pack.advance(stop)
        lines += Pack.restore(spec, pack.to_bytes()).advance()
        assert [losses(lines, number) for number in range(3)] == [losses(whole, number) for number in range(3)]
