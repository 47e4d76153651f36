"""Examples for validation: a share of each client's, by which configurations are chosen, while others report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.data import partitions
from trainers.data.partitions import ClientRows, Rows
from trainers.errors import SpecError
from trainers.problem import Examples

_PATH = "task.validation"


def set_aside(parts: Sequence[Rows], document: Mapping[str, Any], tests: int) -> tuple[ClientRows, Rows]:
    """(rows that each client keeps, rows for validation). Every client keeps at least one example.

    Args:
        parts: rows of each client.
        document: the task, whose `validation` is the share and whose `split_seed` draws.
        tests: number of test clients.

    Raises:
        SpecError: nothing would be set aside, or nothing is left to report on.
    """
    share = document["validation"]
    if not tests:
        raise SpecError(f"{_PATH} must be left out without test examples, which report what it chooses", _PATH)
    whole = ClientRows.of(parts)
    owners = np.repeat(np.arange(len(whole)), whole.sizes)
    aside, kept = partitions.of_each(owners, share, document["split_seed"] + 2)
    if not len(aside):
        raise SpecError(f"{_PATH} must set an example aside, got {share:g} of {len(owners)} examples", _PATH)
    return ClientRows(whole.rows[kept], np.bincount(owners[kept], minlength=len(whole))), whole.rows[aside]


def followed(test: Examples, validation: Examples | None) -> Examples:
    """Test examples, and those for validation after them, if there are any."""
    if validation is None:
        return test
    central = None if test.central is None else np.concatenate([test.central, validation.central])
    return Examples(
        np.concatenate([test.inputs, validation.inputs]),
        np.concatenate([test.targets, validation.targets]),
        np.concatenate([test.offsets, len(test.targets) + validation.offsets]),
        np.concatenate([test.sizes, validation.sizes]),
        test.kind,
        central,
        tests=test.clients,
    )
