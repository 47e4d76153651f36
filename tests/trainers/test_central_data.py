"""The server's own data: its batches and gradients, methods that leave it alone, and wrong central quadratics."""

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .documents import wrong
from .methods.mixed import DIGITS, models, problem


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
    larger = held.batches(0, 144)  # than the server's data
    assert larger.always_full is True
    assert larger.examples(np.array([3])).tolist() == [3 * 143]
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


def test_other_methods_leave_central_data_alone():
    given = problem()[0]
    alone = {key: value for key, value in given.items() if key != "central"}
    np.testing.assert_array_equal(models("fedavg", 4, given), models("fedavg", 4, alone))
    spec = parse({"task": alone, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
    assert "central" not in spec.canonical["task"]


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
    assert str(wrong({"task": task, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})).startswith(message)
