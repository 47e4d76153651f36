"""The trial document of the design, what it becomes with one place changed, and the error of a wrong one."""

from typing import Any

import pytest

from tests.study.documents import changed
from trainers.errors import SpecError
from trainers.trial.document import parse

SERVERS = ("sgd", "adam", "yogi", "adagrad")
"""Optimizers that every method meets on the server; tests/trainers/test_optimizers.py runs all of them."""
METHOD = {"name": "fedavg", "client_lr": 0.05, "server_lr": 0.1, "local_steps": 10}
DESIGN = {
    "task": {
        "name": "quadratic",
        "hessians": [[[2, 0], [0, 1]], [[1, 0], [0, 3]]],
        "centers": [[1, 0], [0, 1]],
        "client_weights": [0.5, 0.5],
        "gradient_noise": 0.0,
    },
    "method": METHOD,
    "server": {"name": "sgd", "momentum": 0.0, "nesterov": False},
    "schedule": {"name": "constant"},
    "init": [0.0, 0.0],
    "clients_per_round": None,
    "batch_size": None,
    "rounds": 200,
    "seed": 0,
    "dtype": "float64",
    "eval_every": 1,
    "report": ["params"],
}


def fedavg(**changes: Any) -> dict[str, Any]:
    """A short trial of FedAvg on digits."""
    return {
        "task": {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}},
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3},
        "clients_per_round": 4,
        "batch_size": 6,
        "rounds": 4,
        "eval_every": 1,
        "seed": 3,
        **changes,
    }


def with_(path: str, value: Any) -> dict[str, Any]:
    """The design's document with one place changed; dots go down, Ellipsis takes the key out."""
    return changed(DESIGN, path, value)


def wrong(document: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse(document)
    assert "\n" not in str(caught.value)
    return caught.value
