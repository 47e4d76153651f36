"""Synthetic classification with clients whose models and inputs differ: FedProx's "Synthetic(alpha, beta)".

    {"name": "logistic_regression", "clients": 30, "input_spread": 1, "iid": false, "size_mean": 4, "size_spread": 2,
     "least_examples": 50, "data_seed": 0, "model": "softmax"}

Client i has inputs x of 60 numbers, normal with mean v_i and variances j^-1.2 for j = 1..60, and the class of 10 with
the largest score x W_i + b_i. The entries of W_i and b_i are standard normal, those of v_i normal with mean B_i and
standard deviation 1, and B_i is normal with mean 0 and standard deviation `input_spread` (beta). With `iid` all clients
have one W and b, and v_i = 0. alpha, the spread of a mean u_i of all entries of W_i and b_i, is left out: u_i adds the
same number to all scores of an example, so that no class depends on it.

A client has `least_examples` examples and exp(N) more, with N normal of mean `size_mean` and standard deviation
`size_spread`; a tenth of them, rounded up, is for testing. Sizes depend on data_seed and the number of clients, the
rest on data_seed and the client. The loss is cross-entropy.

Source: "Federated Optimization in Heterogeneous Networks" (Li et al. 2020), section 5.1, and the authors' generator,
which takes beta as a standard deviation. LEAF's synthetic data are different: clusters of models, and 10 inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.federated import Federated, choose_model, labelled
from trainers.data.partitions import ClientRows
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe, join, tunable
from trainers.problem import MOST_CLIENTS, MOST_DRAWN, Problem

DTYPE = "float32"
BATCHING = "shuffled"
WEIGHTING = "examples"
METRICS = ("test_loss", "test_accuracy")

_INPUTS = 60
_CLASSES = 10
_SIZES, _MODEL, _CLIENT = 0x51, 0x52, 0x53  # second seeds, next to the seed of the data


@dataclass(frozen=True)
class _LogisticKeys:
    """The keys of a document."""

    clients: int = tunable(30, low=1, high=MOST_CLIENTS, unit="clients", doc="size of the population")
    input_spread: float = tunable(1.0, low=0, doc="beta: standard deviation of the means of the clients' inputs")
    iid: bool = tunable(False, doc="one model for all clients, and inputs of mean 0")
    size_mean: float = tunable(4.0, low=0, high=12, doc="mean of the logarithm of a client's examples")
    size_spread: float = tunable(2.0, low=0, high=4, doc="its standard deviation")
    least_examples: int = tunable(50, low=2, unit="examples", doc="that every client has besides")
    data_seed: int = tunable(0, low=0, doc="of the sizes, the models and the examples")
    model: Any = tunable("softmax", kind="any", doc="name of a model, or an object of its name and settings")


SETTINGS = describe(_LogisticKeys)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes.

    Args:
        document: {"name": "logistic_regression", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types, sizes or ranges.
    """
    values = check(_LogisticKeys, document, path, other_keys=("name",))
    if values["iid"]:
        if document.get("input_spread"):
            key_path = join(path, "input_spread")
            raise SpecError(
                f"{key_path} must be left out with iid, whose clients are alike, got {values['input_spread']:g}",
                key_path,
            )
        values["input_spread"] = 0.0
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"))
    if values["clients"] * values["least_examples"] * _INPUTS > MOST_DRAWN:
        raise _too_large(path, values["clients"] * values["least_examples"])
    sizes = _sizes(values)
    if sizes.sum() * _INPUTS > MOST_DRAWN:
        raise _too_large(path, int(sizes.sum()))
    rows, train = ClientRows(np.arange(sizes.sum()), sizes), 9 * sizes // 10
    return Federated(
        {"name": "logistic_regression", **values},
        model,
        model_settings,
        parts=[rows[client][: train[client]] for client in range(len(sizes))],
        test=[rows[client][train[client] :] for client in range(len(sizes))],
        central=None,
        metrics=METRICS,
        shape=(_INPUTS,),
        outputs=_CLASSES,
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; inputs are (examples, 60), drawn in float64.

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    inputs, labels = _drawn(settings.document)
    return labelled(settings, lambda rows: inputs[rows].astype(dtype), labels)


def _sizes(document: Mapping[str, Any]) -> NDArray[np.int64]:
    """(clients,) examples of each client."""
    generator = np.random.default_rng([document["data_seed"], _SIZES])
    drawn = generator.lognormal(document["size_mean"], document["size_spread"], document["clients"])
    return document["least_examples"] + drawn.astype(np.int64)  # type: ignore[no-any-return]


def _drawn(document: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(examples, 60) inputs and (examples,) classes of all clients, one client after another."""
    seed, iid = document["data_seed"], document["iid"]
    deviations = np.arange(1, _INPUTS + 1) ** -0.6
    shared = np.random.default_rng([seed, _MODEL]).normal(size=(_INPUTS + 1, _CLASSES))
    inputs, labels = [], []
    for client, size in enumerate(_sizes(document)):
        generator = np.random.default_rng([seed, _CLIENT, client])
        input_mean = document["input_spread"] * generator.normal()
        weights = shared if iid else generator.normal(size=(_INPUTS + 1, _CLASSES))
        mean = np.zeros(_INPUTS) if iid else generator.normal(input_mean, size=_INPUTS)
        client_inputs = mean + deviations * generator.normal(size=(size, _INPUTS))
        inputs.append(client_inputs)
        labels.append((client_inputs @ weights[:-1] + weights[-1]).argmax(1))
    return np.concatenate(inputs), np.concatenate(labels)


def _too_large(path: str, examples: int) -> SpecError:
    return SpecError(f"{path} must be smaller: examples x {_INPUTS} must be at most {MOST_DRAWN}, got {examples}", path)
