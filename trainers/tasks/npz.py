"""Your own data, without code: arrays in an .npz file, one of which names the client of each example.

    {"name": "npz", "path": "mine.npz", "inputs": "x", "targets": "y", "client": "client", "model": "softmax"}

    numpy.savez("mine.npz", x=inputs, y=labels, client=names)

`inputs` names an array (examples, ...) of numbers, or a list of arrays; `scale` fits a scale to the training clients
(none by default; a model of word ids gets whole numbers). `targets` names labels (examples,), whole numbers or strings,
or, for "linear" and other models of numbers, numbers (examples,) or (examples, outputs). Labels 0, 1, 2 ... are class
numbers; others are numbered in ascending order, or in that of `labels`. `client` names whole numbers or strings
(examples,).

Test examples are marked by a true/false array, `"test": "is_test"`; are in separate arrays,
`"test": {"inputs": "x_test", "targets": "y_test", "client": "client_test"}` (client is optional), or in another file,
`"test": {"path": "later.npz"}`; or belong to some clients, `"test": {"clients": 0.2}`, or a list of names. Otherwise
they are `test_fraction`, 0.2 by default, of each client's examples (of each class if the partition is not natural).

The default is the natural partition, with one client for each value in the client array. Other partitions are as in the
task digits (only "iid" for regression), and need no client array if `clients` is given. A relative path is looked up in
the current directory, then in $DATA_DIR. If `sha256` is given, a file with another hash is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.data import table_task
from trainers.data.federated import settings_of
from trainers.data.table_task import TableKeys, TableTask, build, stamp

__all__ = ["build", "stamp"]

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
SETTINGS = settings_of(TableKeys)


def parse(document: Mapping[str, Any], path: str) -> TableTask:
    """The task that a document describes, with its split; reads and checks all of its data."""
    return table_task.parse(document, path, TableKeys)
