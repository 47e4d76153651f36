"""Your own data, without code: a file or folder in any format that Driftline reads.

    {"name": "data", "path": "femnist/data", "format": "leaf", "model": "softmax"}

`format` is found by the file's name unless it is given:

- csv: comma- or tab-separated values with the columns' names in the first row; jsonl: JSON lines; parquet; arrow:
  Arrow, Feather and Hugging Face datasets saved to disk.
- idx: MNIST's files; cifar_pickles: CIFAR's for Python; image_folder: CLASS/image.png or CLIENT/CLASS/image.png.
- hdf5: TensorFlow Federated's files; leaf: LEAF's JSON, by user; npz: arrays, as in the task npz.

A folder with `train` and `test`, as folders or in the files' names, brings its own test examples.

`inputs` names a column, or a list of columns: numbers stay as they are, categories become one-hot. If it names a single
column, strings become the numbers of their characters, lists of strings those of their tokens, by sorted vocabulary.
`targets` names labels of any kind, numbers for models of numbers, or tags for models of tags: lists, or text with a
`separator`. Everything else is as in the task npz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainers.data import table_task
from trainers.data.data_source import AUTO, formats
from trainers.data.federated import settings_of
from trainers.data.table_task import TableKeys, TableTask, build, stamp
from trainers.hyperparameters import tunable

__all__ = ["build", "stamp"]

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")


@dataclass(frozen=True)
class _DataKeys(TableKeys):
    """The keys of a document."""

    format: str = tunable(AUTO, doc=f"of the data: {', '.join(formats())}; {AUTO} is the one that recognises them")


SETTINGS = settings_of(_DataKeys)


def parse(document: Mapping[str, Any], path: str) -> TableTask:
    """The task that a document describes, with its split; reads and checks all of its data."""
    return table_task.parse(document, path, _DataKeys)
