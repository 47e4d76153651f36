"""Few-shot regression: each client has points of its own sine wave, which differ in amplitude and phase.

    {"name": "sinusoids", "clients": 1000, "test_clients": 100, "examples": 20, "data_seed": 0,
     "model": {"name": "mlp", "hidden": [40, 40]}}

Client i has y = amplitude sin(x - phase) at `examples` points x, uniform in [-5, 5], with the amplitude uniform in
[0.1, 5] and the phase in [0, pi]. It depends on data_seed and i alone. The loss is half the squared error. With
`"adaptation": {"steps": [0, 1, 5], "client_lr": 0.02, "support": 0.5}` test clients learn from 10 of 20 points and are
measured on the others; the published step size of 0.01 for the squared error is 0.02 for half of it.

Source: section 5.1 of "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks" (Finn, Abbeel, Levine 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainers.data.federated import Federated, choose_model
from trainers.data.partitions import ClientRows
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe, join, tunable
from trainers.problem import MOST_CLIENTS, MOST_DRAWN, Examples, Problem
from trainers.target_kinds import KINDS

DTYPE = "float32"
BATCHING = "shuffled"
WEIGHTING = "uniform"
METRICS = KINDS["numbers"].metrics
QUALITY = "test_loss"
MODEL = "mlp"

_SIDES = {"clients": 30, "test_clients": 31}  # so that training and test clients are drawn apart


@dataclass(frozen=True)
class _SinusoidKeys:
    """The keys of a document."""

    clients: int = tunable(1000, low=1, high=MOST_CLIENTS, unit="tasks", doc="for training")
    test_clients: int = tunable(100, low=1, high=MOST_CLIENTS, unit="tasks", doc="for testing")
    examples: int = tunable(20, low=2, unit="points", doc="of each client")
    data_seed: int = tunable(0, low=0, doc="of the waves and of their points")
    model: Any = tunable(None, kind="any", doc='null is {"name": "mlp", "hidden": [40, 40]}')


SETTINGS = describe(_SinusoidKeys)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes.

    Args:
        document: {"name": "sinusoids", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types, sizes or ranges.
    """
    values = check(_SinusoidKeys, document, path, other_keys=("name",))
    for key in _SIDES:
        if values[key] * values["examples"] > MOST_DRAWN:
            raise SpecError(
                f"{path} must be smaller: {key} x examples must be at most {MOST_DRAWN}, "
                f"got {values[key]} x {values['examples']}",
                path,
            )
    chosen = values["model"] or {"name": MODEL, "hidden": [40, 40]}
    model, model_settings, values["model"] = choose_model(chosen, join(path, "model"), ("numbers",))
    train, test = (_rows(values[key], values["examples"]) for key in _SIDES)
    return Federated(
        {"name": "sinusoids", **values},
        model,
        model_settings,
        parts=train,
        test=test,
        central=None,
        metrics=METRICS,
        shape=(1,),
        outputs=1,
        kind="numbers",
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; inputs and targets are (examples, 1), drawn in float64.

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    train, test = (_drawn(settings.document, key, dtype) for key in _SIDES)
    return Problem(model=settings.model, train=train, test=test, model_settings=settings.model_settings)


def _rows(clients: int, examples: int) -> ClientRows:
    return ClientRows(np.arange(clients * examples), np.full(clients, examples))


def _drawn(document: Mapping[str, Any], side: str, dtype: str) -> Examples:
    """The points of all clients of one side."""
    clients, examples = document[side], document["examples"]
    inputs, targets = np.empty((2, clients, examples))
    for client in range(clients):
        generator = np.random.default_rng([document["data_seed"], _SIDES[side], client])
        amplitude, phase = generator.uniform(0.1, 5.0), generator.uniform(0.0, np.pi)
        inputs[client] = generator.uniform(-5.0, 5.0, examples)
        targets[client] = amplitude * np.sin(inputs[client] - phase)
    parts = _rows(clients, examples)
    inputs, targets = (array.reshape(-1, 1).astype(dtype) for array in (inputs, targets))
    return Examples(inputs, targets, parts.offsets, parts.sizes, "numbers")
