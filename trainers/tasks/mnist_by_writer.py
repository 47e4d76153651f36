"""MNIST with its writers as clients: 60000 digits of 539 people for training, 10000 of 297 others for testing.

    {"name": "mnist_by_writer", "writers": 100, "test_writers": 50, "split_seed": 0, "model": "softmax"}

Images are 28 x 28 with pixels in [0, 1], in $DATA_DIR/mnist_by_writer. Their writers are known from QMNIST (Yadav,
Bottou 2019). A writer of the training set has 19 to 131 images, median 116. For smaller studies, `writers` and
`test_writers` are numbers of writers to draw by split_seed; a smaller draw is a subset of a larger one.

The natural partition has one client for each writer. With "iid", "by_label", {"dirichlet": concentration} or
{"classes_per_client": c}, the images of the same writers are split among `clients` clients, by default as many as
writers. The test set is always grouped by writer. `"central": {"fraction": 0.1}` gives the server that part of every
writer's images (of every digit's images under the other partitions), for mixed federated learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainers.data import partitions
from trainers.data.federated import PARTITION_DOC, Federated, FederatedKeys, Pool, choose_model, divide, settings_of
from trainers.data.folder import readable
from trainers.data.images import CLASSES, MNIST, image_task
from trainers.data.partitions import Rows
from trainers.hyperparameters import check, join, tunable
from trainers.problem import Problem

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
_WRITERS = 539
_TEST_WRITERS = 297


@dataclass(frozen=True)
class _WriterKeys(FederatedKeys):
    """The keys of a document."""

    writers: int | None = tunable(None, low=1, high=_WRITERS, unit="people", doc="who train; null is all")
    test_writers: int | None = tunable(None, low=1, high=_TEST_WRITERS, unit="people", doc="who test; null is all")
    clients: int | None = tunable(
        None, low=1, unit="clients", doc="size of the population; null is one for each writer"
    )
    partition: Any = tunable("natural", kind="any", doc=PARTITION_DOC)


SETTINGS = settings_of(_WriterKeys)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes, with its split.

    Args:
        document: {"name": "mnist_by_writer", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or an impossible partition.
        MissingDataError: the data is not there.
    """
    values = check(_WriterKeys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"))
    with readable(path):
        labels, writers = MNIST.labels(), MNIST.writers()
    rows, seed = np.arange(len(labels)), values["split_seed"]
    train = _of(writers, rows[: MNIST.train], values["writers"], seed)
    test = _of(writers, rows[MNIST.train :], values["test_writers"], seed)
    parts, central = divide(values, Pool(labels, train, writers), path)
    groups = partitions.natural(writers[test]).within(test)
    return Federated(
        {"name": "mnist_by_writer", **values},
        model,
        model_settings,
        parts,
        groups,
        central,
        shape=MNIST.example,
        outputs=CLASSES,
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; images are (1, 28, 28).

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    return image_task(MNIST, settings, dtype)


def _of(writers: Rows, rows: Rows, count: int | None, seed: int) -> Rows:
    """The rows of `count` of the writers of `rows`, drawn by `seed`; None keeps all rows."""
    if count is None:
        return rows
    chosen = partitions.choose(np.unique(writers[rows]), count, seed)
    return rows[np.isin(writers[rows], chosen)]
