"""Points around the directions of a compass, which each client holds turned by an angle of its own.

    {"name": "compass", "clients": 20, "examples": 30, "classes": 4, "turn": 0.3, "data_seed": 0, "model": "softmax"}

The class of a point is its direction. Client i's points lie around (cos a, sin a), a = 2 pi class / classes + turn z_i
with z_i standard normal; a fifth of them is held out for testing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.plugin import Federated, Problem, Rows, check, choose_model, describe, examples, join, tunable

DTYPE = "float32"  # of parameters and inputs, unless the trial says otherwise
BATCHING = "shuffled"  # how batches are drawn, unless the trial says otherwise
METRICS = ("test_loss", "test_accuracy")  # what an evaluation reports
_SPREAD = 0.3


@dataclass(frozen=True)
class _Keys:
    """What a document may say."""

    clients: int = tunable(20, low=1, unit="clients", doc="size of the population")
    examples: int = tunable(30, low=5, doc="points of each client")
    classes: int = tunable(4, low=2, doc="directions of the compass")
    turn: float = tunable(
        0.3, low=0, unit="radians", limit="0 is clients alike", doc="deviation of the clients' angles"
    )
    data_seed: int = tunable(0, low=0, doc="of angles and points")
    model: Any = tunable("softmax", kind="any", doc="name of a model, or an object of its name and settings")


SETTINGS = describe(_Keys)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes.

    Args:
        document: {"name": "compass", ...}.
        path: dotted place of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges.
    """
    values = check(_Keys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"))
    rows = np.arange(values["clients"] * values["examples"]).reshape(values["clients"], -1)
    held_out = values["examples"] // 5
    train, test = tuple(rows[:, held_out:]), tuple(rows[:, :held_out])
    return Federated({"name": document["name"], **values}, model, model_settings, train, test, central=None)


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on.

    Args:
        settings: from `parse`.
        dtype: of the trial. The model converts the points to it; whole numbers, such as word ids, it could keep.
    """
    values = settings.document
    generator = np.random.default_rng(values["data_seed"])
    labels = generator.integers(values["classes"], size=(values["clients"], values["examples"]))
    turns = values["turn"] * generator.standard_normal((values["clients"], 1))
    angles = (2 * math.pi / values["classes"] * labels + turns).reshape(-1)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points += _SPREAD * generator.standard_normal(points.shape)

    def inputs(rows: Rows) -> NDArray[np.float64]:
        return points[rows]

    return Problem(
        model=settings.model,
        train=examples(settings.parts, inputs, labels.reshape(-1)),
        test=examples(settings.test, inputs, labels.reshape(-1)),
        model_settings={"classes": values["classes"], **settings.model_settings},
    )
