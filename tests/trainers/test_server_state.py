"""Server optimizers that keep nothing, and schedule-free steps against the reference."""

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.engine.rounds.role_optimizer import RoleOptimizer, first_memory
from trainers.registry import optimizers
from trainers.trial.document import parse

from .documents import wrong

sgd = optimizers()["sgd"]
HESSIAN, CENTER = np.diag([1.0, 10.0]), np.array([1.0, -2.0])


def test_plain_descent_keeps_no_memory():
    params, gradient, rate = torch.tensor([[[1.0]]]), torch.tensor([[[2.0]]]), torch.tensor([[[0.1]]])
    plain, heavy = (RoleOptimizer(sgd, sgd.Hyper(momentum=torch.tensor([[[momentum]]]))) for momentum in (0.0, 0.5))
    assert first_memory({"server": plain}, params) == {"server": {}}
    assert first_memory({"server": heavy}, params)["server"].keys() == {"velocity", "steps"}
    moved, memory = plain.step({}, params, gradient, rate)
    assert (moved.item(), memory) == (pytest.approx(0.8), {})


def schedule_free(beta, server_lr, rounds, start):
    """The reference's form: three sequences; evaluated models."""
    x = z = start
    found = [x]
    for number in range(rounds):
        y = (1 - beta) * z + beta * x
        z = z - server_lr * HESSIAN @ (y - CENTER)
        x = x + (z - x) / (number + 1)
        found.append(x)
    return np.array(found)


BETAS = [0.0, 0.5, 0.9, 1.0]
FREE = {
    "task": {"name": "quadratic", "hessians": [HESSIAN.tolist()], "centers": [CENTER.tolist()]},
    "method": {"name": "fedsgd", "server_lr": 0.05},
    "server": {"name": "schedule_free"},
    "members": [{"server.beta": beta} for beta in BETAS],
    "init": [3.0, 3.0],
    "rounds": 50,
    "eval_every": 1,
    "report": ["params"],
}


def test_schedule_free_steps_against_the_reference():
    spec = parse(FREE)
    pack = Pack.from_spec(spec)
    lines = pack.advance(20)
    lines += Pack.restore(spec, pack.to_bytes()).advance()
    for member, beta in enumerate(BETAS):
        own = [line for line in lines if line["member"] == member]
        wanted = schedule_free(beta, 0.05, 50, np.array([3.0, 3.0]))
        np.testing.assert_allclose([line["params"] for line in own], wanted, rtol=0, atol=1e-12)
        losses = [(model - CENTER) @ HESSIAN @ (model - CENTER) / 2 for model in wanted]
        np.testing.assert_allclose([line["loss"] for line in own], losses, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schedule": {"name": "cosine", "rates": "server_lr"}}, "schedule.name"),
        ({"schedule": {"name": "plateau", "window": 5}}, "schedule.name"),
        ({"method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2},
          "server": {"name": "sgd"}, "members": None, "client": {"name": "schedule_free"}}, "client.name"),
    ],
)  # fmt: skip
def test_schedule_free_steps_are_for_servers_with_a_constant_rate(changes, path):
    work = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    assert parse({**FREE, "method": work, "schedule": {"name": "cosine", "rates": "client_lr"}}).members == len(BETAS)
    assert wrong({**FREE, **changes}).path == path
