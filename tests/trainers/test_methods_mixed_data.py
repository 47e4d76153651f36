"""Mixed federated learning: the server's data and the costs, packs and restarts, and wrong input."""

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.trial.document import parse

from .mixed import DIGITS, METHODS, models, problem, train


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
    return pack, pack._setting.central


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
    assert pack._setting.source.seed != held.batches(0, None).source.seed


def test_the_central_gradient_is_the_mean_over_batches():
    pack, held = central_side(5)
    alive = np.ones(1, dtype=bool)
    params = torch.randn((1, 1, pack._setting.model.layout.size), dtype=torch.float64, generator=torch.manual_seed(0))
    params = pack._setting.model.layout.row(pack._setting.model.layout.vector(params[:, 0])[0]).view(1, 1, -1) * 0.1
    whole = held.at(0, alive).gradient(params, batch_size=15 * 3)
    parts = held.at(0, alive).gradient(params, batches=torch.full((1, 1, 1), 3))
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-14)  # consecutive batches of one shuffled pass
    model, batches = held._model, held.batches(0, None)
    full = model.oracles[pack.plan.oracle].value_and_grad(params, batches.full())[1]
    weight = torch.full((1, 1, 1), 0.25, dtype=torch.float64)
    exact = central_side(None)[1].at(0, alive).gradient(params, weight, batches=torch.full((1, 1, 1), 3))
    np.testing.assert_allclose(exact, 0.25 * full, rtol=0, atol=1e-14)
    assert (whole - full).abs().max() > 1e-3


@pytest.mark.parametrize("name", METHODS)
def test_passes_over_unequal_clients(name):
    given = {**DIGITS, "clients": 10, "partition": "by_label"}
    needed = "central_batch_size" if name == "one_way_transfer" else "central_steps"
    trial = {"batch_size": 9}
    lines = train(name, 3, given, local_epochs=1, local_steps=None, **{needed: 6}, trial=trial)
    sizes = parse({"task": given, "method": {"name": "fedsgd", "server_lr": 1}, "rounds": 1}).task.examples
    assert lines[-1]["client_gradients"] == 3 * (-(-sizes // 9)).sum()
    with pytest.raises(SpecError, match=rf"^method\.{needed} must be given where clients have local_epochs, got none"):
        train(name, 3, given, local_epochs=1, local_steps=None, trial=trial)


@pytest.mark.parametrize("name", METHODS)
def test_digits_with_a_tenth_of_the_examples_at_the_server(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    merge = {"merge_by": "mean"} if name == "two_way_transfer" else {}
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
    for oracle in first._setting.model.oracles:
        pack = Pack.from_spec(parse(document), plan=type(first.plan)(**{**first.plan.to_json(), "oracle": oracle}))
        found.append(pack.advance()[-1]["params"])
    assert len(found) > 1
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-10)


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


def test_other_methods_leave_central_data_alone():
    given = problem()[0]
    alone = {key: value for key, value in given.items() if key != "central"}
    np.testing.assert_array_equal(models("fedavg", 4, given), models("fedavg", 4, alone))
    spec = parse({"task": alone, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
    assert "central" not in spec.canonical["task"]


BAD = [
    ({"task": {**DIGITS, "central": None}}, "task.central must be given for NAME, which trains on data of the server"),
    ({"task": {"name": "quadratic", "problem": "two_clients"}}, "task.central must be given for NAME"),
    (
        {"method": {"federated_weight": 0.6, "central_weight": 0.6}},
        "method.central_weight must be 1 - federated_weight, got",
    ),
    ({"method": {"federated_weight": 1.5}}, "method.federated_weight must be in [0, 1], got"),
    ({"method": {"central_batch_size": 0}}, "method.central_batch_size must be at least 1, got"),
    ({"method": {"epsilon": 0.1}}, 'unknown key "epsilon" in method: known are'),
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


def test_the_federated_correction_is_the_mean_of_all_gradients_of_unequal_clients():
    """What the server tells from pseudo-gradients is the mean over all local steps, however many each client takes."""
    given = {**DIGITS, "clients": 10, "partition": "by_label"}
    method = {"client_lr": 0.05, "server_lr": 0.05, "local_epochs": 1, "central_steps": 3}
    document = {"task": given, "rounds": 1, "batch_size": 9, "weighting": "uniform", "dtype": "float64"}
    pack = Pack.from_spec(parse({**document, "method": {"name": "two_way_transfer", **method}}))
    before = pack._lanes[0].now.state.params
    pack.advance()
    alone = {"name": "parallel_training", **method, "central_lr": 0.0}  # the same first round of the clients
    after = Pack.from_spec(parse({**document, "method": alone}))
    after.advance()
    sizes = pack.spec.task.examples
    steps = -(-sizes // 9)
    assert len(set(steps)) > 1
    mean = (before - after._lanes[0].now.state.params) / 0.05 / steps.mean()
    np.testing.assert_allclose(pack._lanes[0].now.state.memory["federated_correction"], mean, rtol=0, atol=1e-14)
