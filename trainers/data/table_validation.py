"""Which of a user's examples are for validation, by which configurations are chosen.

"validation": 0.2                        a share of each client's training examples (`validation_split`)
"validation": "fold"                     those that a true/false column marks
"validation": {"clients": 0.1}           all examples of clients who then do not train: a share, or names
"validation": {"path": "later.csv"}      those of another file with the same columns
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.data.partitions import Rows, taken
from trainers.data.sides import ClientsKeys, FileKeys
from trainers.data.table import Table
from trainers.data.table_split import chosen_clients, grouped
from trainers.errors import SpecError
from trainers.hyperparameters import check, join
from trainers.values import shown


def checked(value: Any, path: str) -> Any:
    """The value of a document, with its form checked.

    Args:
        value: the value in the document.
        path: dotted path of the value.

    Raises:
        SpecError: the value has none of the forms.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return check(FileKeys if "path" in value else ClientsKeys, value, path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        rule = 'in (0, 1), a column, {"clients": ..} or {"path": ..}'
        raise SpecError(f"{path} must be {rule}, got validation={shown(value)}", path)
    return float(value)


def column_of(value: Any) -> str | None:
    """The column that marks examples for validation; None without one."""
    return value if isinstance(value, str) else None


def set_apart(values: Mapping[str, Any], table: Table, rows: Rows, path: str) -> tuple[Rows, Sequence[Rows] | None]:
    """(rows for training, validation rows of each client, or None if a share is drawn later or there are none).

    Args:
        values: checked values of the document.
        table: the examples.
        rows: rows of `table.main` that are neither for testing nor marked for validation.
        path: dotted path of the task.

    Raises:
        SpecError: a named client does not exist, or nothing is left to train on.
    """
    value, owners, key_path = values["validation"], table.main.clients, join(path, "validation")
    if table.validation is not None:
        return rows, grouped(np.arange(len(table.validation.targets)), table.validation.clients)
    if table.marked is not None:
        if not len(rows):
            raise SpecError(f"{key_path} must leave an example to train on, got all that do not test", key_path)
        return rows, grouped(np.flatnonzero(table.marked), owners)
    if not isinstance(value, Mapping):
        return rows, None
    people = np.unique(taken(owners, rows)) if owners is not None else np.arange(0)
    chosen = chosen_clients(value["clients"], table.main, people, values["split_seed"] + 2, join(key_path, "clients"))
    held_out = np.isin(taken(owners, rows), chosen) if owners is not None else np.zeros(len(rows), bool)
    return rows[~held_out], grouped(rows[held_out], owners)
