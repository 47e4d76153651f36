"""Your own data, without code: a file or folder in any format that Driftline reads.

    {"name": "data", "path": "femnist/data", "format": "leaf", "model": "softmax"}

`format` is found by the file's name unless it is given:

- leaf: LEAF's JSON, a file or a folder with `train` and `test`; the columns are x, y and client, the user. The folder
  `test` holds the test examples, by user.
- npz: arrays of an .npz file, as in the task npz.

`inputs`, `targets` and `client` name columns; the rest is as in the task npz. In LEAF's files, strings are replaced by
numbers: of the characters for a string as inputs, of the tokens for a list of strings, of the classes for targets. A
number is the string's place in the sorted vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainers.data import table_task
from trainers.data.data_source import AUTO, formats
from trainers.data.federated import settings_of
from trainers.data.folder import VARIABLE
from trainers.data.table_task import TableKeys, TableTask, build, stamp
from trainers.hyperparameters import tunable

__all__ = ["build", "stamp"]

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")


@dataclass(frozen=True)
class _DataKeys(TableKeys):
    """The keys of a document."""

    path: str = tunable(doc=f"the file or folder, from the current directory or ${VARIABLE}")
    format: str = tunable(AUTO, doc=f"of the data: {', '.join(formats())}; {AUTO} is the one that recognises them")


SETTINGS = settings_of(_DataKeys)


def parse(document: Mapping[str, Any], path: str) -> TableTask:
    """The task that a document describes, with its split; reads and checks all of its data."""
    return table_task.parse(document, path, _DataKeys)
