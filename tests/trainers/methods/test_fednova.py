"""FedNova: equal steps are FedAvg, and the sums of weights are the paper's; unequal passes are in test_passes.py."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.engine.rounds.role_optimizer import RoleOptimizer
from trainers.methods.fednova import Hyper, sums_of_ones
from trainers.registry import optimizers
from trainers.tasks import linear_regression
from trainers.trial.document import parse
from trainers.trial.roles import serving

from ..documents import wrong

heavy_ball = optimizers()["momentum"]
REGRESSION = {
    "name": "linear_regression",
    "clients": 3,
    "examples": [40, 12, 4],
    "eigenvalues": [0.5, 1.0],
    "orientation": "random",
    "label_noise": 1.0,
    "data_seed": 2,
}


def lines(method, **changes):
    given = {"task": REGRESSION, "method": method, "server": {"name": "sgd"}, "rounds": 10, **changes}
    return Pack.from_spec(parse({"report": ["params"], "eval_every": 1, **given})).advance()


def path(method, **changes):
    return np.array([line["params"] for line in lines(method, **changes)])


@pytest.mark.parametrize("more", [{}, {"prox": 0.4}, {"client": {"name": "momentum", "momentum": 0.7}}])
def test_equal_steps_are_fedavg(more):
    work = {"client_lr": 0.1, "server_lr": 0.2, "local_steps": 5} | {k: v for k, v in more.items() if k != "client"}
    other = "fedprox" if "prox" in more else "fedavg"
    changes = {"batch_size": 3, "weighting": "examples", "server": {"name": "sgd", "momentum": 0.5}}
    changes |= {"client": more.get("client")}
    found = path({"name": "fednova", **work}, **changes)
    np.testing.assert_allclose(found, path({"name": other, **work}, **changes), rtol=1e-12, atol=1e-12)
    unequal = {"client_lr": 0.1, "server_lr": 0.2, "local_epochs": 2}
    apart = path({"name": "fednova", **unequal}, **changes) - path({"name": "fedavg", **unequal}, **changes)
    assert np.abs(apart[-1]).max() > 1e-3


def column(*values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def norms(steps, relative=None, **settings):
    trials = len(next(iter(settings.values()))) if settings else 1
    given = {"client_lr": column(*[0.1] * trials), "server_lr": None, "local_steps": None, "prox": column(0.0)}
    hyper, like = Hyper(**given | settings), torch.zeros(trials, 1, 1, dtype=torch.float64)
    plan = replace(hyper.step_plan, relative_rates=relative)
    return sums_of_ones(hyper, plan, None, np.array(steps), like)[..., 0].numpy()


def test_sums_of_ones_are_the_papers_norms():
    assert norms([[1, 5, 3]]).tolist() == [[1, 5, 3]]
    assert norms([[1, 3, 2]], torch.tensor([[0.0, 1.5, 0.5]])).tolist() == [[1, 2, 1.5]]  # 1: it sends 0, whatever norm
    found = norms([[1, 5, 3], [2, 2, 7]], prox=column(2.0, 0.5))
    wanted = [[(1 - 0.8**k) / 0.2 for k in (1, 5, 3)], [(1 - 0.95**k) / 0.05 for k in (2, 2, 7)]]
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    momentum = 0.7  # the weights of momentum are (1 - momentum^(K - k + 1)) / (1 - momentum)
    hyper = Hyper(client_lr=column(0.1), server_lr=None, local_steps=None, prox=column(0.0))
    optimizer = RoleOptimizer(heavy_ball, heavy_ball.Hyper(momentum=column(momentum)))
    found = sums_of_ones(
        hyper, hyper.step_plan, optimizer, np.array([[1, 6]]), torch.zeros(1, 1, 1, dtype=torch.float64)
    )[0, :, 0]
    wanted = [sum((1 - momentum**j) / (1 - momentum) for j in range(1, k + 1)) for k in (1, 6)]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-13)


def test_one_round_by_hand():
    work = {"client_lr": 0.1, "server_lr": 0.1, "local_epochs": 3, "prox": 0.5}
    given = {"rounds": 1, "batch_size": None, "weighting": "uniform"}
    train, _ = linear_regression.parse(REGRESSION, "task").drawn
    ends = []
    for first, size in zip(train.offsets, train.sizes, strict=True):
        x, z, y = train.inputs[first : first + size], train.targets[first : first + size], np.zeros(2)
        for _ in range(3):  # full batches: a pass is a step
            y = y - 0.1 * (x.T @ (x @ y - z) / size + 0.5 * y)
        ends.append(-y / 0.1)
    np.testing.assert_allclose(path({"name": "fednova", **work}, **given)[-1], -0.1 * np.mean(ends, 0), rtol=1e-12)
    doubled = {"name": "fednova", **work, "effective_steps": 2 * (1 - 0.95**3) / 0.05}
    np.testing.assert_allclose(path(doubled, **given)[-1], -0.2 * np.mean(ends, 0), rtol=1e-12)


def test_adaptive_steps_are_refused():
    method = {"name": "fednova", "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 1}
    assert str(wrong({"task": REGRESSION, "method": method, "client": {"name": "adam"}, "rounds": 1})) == (
        f"method fednova takes linear client optimizers ({', '.join(serving('client', 'linear'))}), "
        "got client.name=adam: its directions are not linear in the gradients"
    )
