"""Images of clothes: 900 of 28 x 28 in ten classes, split among clients, a fifth of each class held out for testing.

    {"name": "fashion", "clients": 50, "partition": {"classes_per_client": 2}, "split_seed": 0, "model": "softmax"}

A part of Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), small enough for quick studies, in $DATA_DIR/fashion_mnist_900.
Pixels are in [0, 1]. Partitions and `central` are as in the task digits; there are no natural clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.data import partitions
from trainers.data.federated import Federated, FederatedKeys, Pool, choose_model, divide, settings_of
from trainers.data.folder import readable
from trainers.data.images import CLASSES, FASHION, image_task
from trainers.hyperparameters import check, join
from trainers.problem import Problem

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
SETTINGS = settings_of(FederatedKeys)
_TEST_FRACTION = 0.2


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes, with its split.

    Args:
        document: {"name": "fashion", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or an impossible partition.
        MissingDataError: the data is not there.
    """
    values = check(FederatedKeys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"))
    with readable(path):
        labels = FASHION.labels()
    test, rest = partitions.stratified(labels, _TEST_FRACTION, values["split_seed"])
    parts, central = divide(values, Pool(labels, rest, unnatural="fashion, which has no natural clients"), path)
    return Federated(
        {"name": "fashion", **values},
        model,
        model_settings,
        parts,
        (test,),
        central,
        shape=FASHION.example,
        outputs=CLASSES,
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; images are (1, 28, 28).

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    return image_task(FASHION, settings, dtype)
