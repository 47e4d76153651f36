"""Colour photographs over clients: 4000 of CIFAR-10 for training and 1000 of its test set, 32 x 32, ten classes.

    {"name": "cifar", "clients": 50, "partition": {"dirichlet": 0.1}, "split_seed": 0, "model": "cnn"}

The images are the first rows of the first training batch and of the test batch of CIFAR-10 (Krizhevsky 2009), in
$DATA_DIR/cifar10_subset. Pixels in [0, 1] are standardised per channel with the mean (0.49159668, 0.48175928,
0.4446567) and the standard deviation (0.24711378, 0.24397223, 0.26250026) of the 4000 training images. Partitions and
`central` are as in the task digits; there are no natural clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainers.data.federated import Federated, FederatedKeys, Pool, choose_model, divide, settings_of
from trainers.data.folder import readable
from trainers.data.images import CIFAR, CLASSES, image_task
from trainers.hyperparameters import check, join
from trainers.problem import Problem

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
SETTINGS = settings_of(FederatedKeys)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes, with its split.

    Args:
        document: {"name": "cifar", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or an impossible partition.
        MissingDataError: the data is not there.
    """
    values = check(FederatedKeys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"))
    with readable(path):
        labels = CIFAR.labels()
    rows = np.arange(len(labels))
    pool = Pool(labels, rows[: CIFAR.train], unnatural="cifar, which has no natural clients")
    parts, central = divide(values, pool, path)
    return Federated(
        {"name": "cifar", **values},
        model,
        model_settings,
        parts,
        (rows[CIFAR.train :],),
        central,
        shape=CIFAR.example,
        outputs=CLASSES,
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; photographs are (3, 32, 32), standardised.

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    return image_task(CIFAR, settings, dtype)
