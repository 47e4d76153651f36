"""Handwritten digits: 1797 images of 8 x 8, split among clients, with a fifth of each digit held out for testing.

    {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}, "split_seed": 0, "model": "softmax"}

The data comes with scikit-learn. `partition` is "iid", "by_label", {"dirichlet": concentration} or
{"classes_per_client": c} (trainers/data/partitions.py); "natural" is not available, because writers are not recorded.
`"central": {"fraction": 0.1}` gives the server that part of the training examples, for mixed federated learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.data import digits_images, partitions
from trainers.data.federated import Federated, FederatedKeys, Pool, choose_model, divide, labelled, settings_of
from trainers.data.folder import readable
from trainers.hyperparameters import check, join
from trainers.problem import Problem

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
SETTINGS = settings_of(FederatedKeys)
_TEST_FRACTION = 0.2
_SHAPE = (1, 8, 8)


def parse(document: Mapping[str, Any], path: str) -> Federated:
    """The task that a document describes, with its split.

    Args:
        document: {"name": "digits", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or an impossible partition.
        MissingDataError: the data is not installed.
    """
    values = check(FederatedKeys, document, path, other_keys=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"))
    with readable(path):
        _, labels = digits_images.load()
    test, rest = partitions.stratified(labels, _TEST_FRACTION, values["split_seed"])
    pool = Pool(labels, rest, unnatural="digits, whose writers are not recorded")
    parts, central = divide(values, pool, path)
    return Federated(
        {"name": "digits", **values},
        model,
        model_settings,
        parts,
        (test,),
        central,
        shape=_SHAPE,
        outputs=digits_images.CLASSES,
    )


def build(settings: Federated, dtype: str) -> Problem:
    """The problem to train on; images are (1, 8, 8).

    Args:
        settings: from `parse`.
        dtype: type of the inputs, "float32" or "float64".
    """
    images, labels = digits_images.load()
    return labelled(settings, lambda rows: images[rows].astype(dtype).reshape(-1, *_SHAPE), labels)
