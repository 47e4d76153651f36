"""Pooled training: gradient descent on the whole loss, an exchange for every step."""

import numpy as np

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .mixed import DIGITS, models, problem

COSTS = ("exchanges", "bytes_down", "bytes_up", "client_gradients")


def test_pooled_digits_are_one_data_set():
    """With full batches and weights by examples a step is along the mean over all clients' examples."""
    task = {**DIGITS, "clients": 6, "partition": {"dirichlet": 0.2}}
    pooled = models("pooled_training", 2, task, federated_weight=1, server_lr=0.05)
    alone = {"name": "digits", "clients": 1, "central": {"fraction": 0.1}}
    np.testing.assert_allclose(pooled, models("fedavg", 2, alone, server_lr=0.05), rtol=0, atol=1e-12)


def test_members_with_fewer_steps_cost_less():
    document = {
        "task": problem()[0],
        "method": {"name": "pooled_training", "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4},
        "members": [{}, {"local_steps": 1}],
        "rounds": 3,
    }
    last = Pack.from_spec(parse(document)).advance()[-2:]
    assert [[line[key] for key in COSTS] for line in last] == [
        [12, 12 * 96, 12 * 96, 12 * 4],
        [3, 3 * 96, 3 * 96, 3 * 4],
    ]
