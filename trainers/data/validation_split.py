"""Examples for validation, a share of each client's, to choose configurations by; test examples are for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainers.data import partitions
from trainers.data.partitions import ClientRows, Rows
from trainers.errors import SpecError
from trainers.problem import Examples

_PATH = "task.validation"


def require_tests(tests: int) -> None:
    """Raises a SpecError if there are no test clients, so that nothing is left to report on."""
    if not tests:
        raise SpecError(f"{_PATH} must be left out without test examples, which report what it chooses", _PATH)


def set_aside(parts: Sequence[Rows], document: Mapping[str, Any]) -> tuple[ClientRows, ClientRows]:
    """(rows that each client keeps, rows for validation of the clients that have some).

    Every client keeps at least one example.

    Args:
        parts: rows of each client.
        document: the task, whose `validation` is the share and whose `split_seed` draws.

    Raises:
        SpecError: nothing would be set aside.
    """
    share = document["validation"]
    whole = ClientRows.of(parts)
    owners = np.repeat(np.arange(len(whole)), whole.sizes)
    held_out, kept = partitions.of_each(owners, share, document["split_seed"] + 2)
    if not len(held_out):
        raise SpecError(f"{_PATH} must set an example aside, got {share:g} of {len(owners)} examples", _PATH)
    keeps, gives = (np.bincount(owners[which], minlength=len(whole)) for which in (kept, held_out))
    return ClientRows(whole.rows[kept], keeps), ClientRows(whole.rows[held_out], gives[gives > 0])


def of_populations(test: Examples, apart: Sequence[bool]) -> Examples:
    """Test examples marked by population: `apart` is True for clients of the server's population; () marks none."""
    return replace(test, central=np.repeat(np.array(apart, bool), test.sizes)) if apart else test


def followed(test: Examples, validation: Examples | None) -> Examples:
    """Test examples, then validation examples if there are any, which are of the clients' population."""
    if validation is None:
        return test
    return replace(joined(test, replace(validation, central=None)), tests=test.clients, people=test.people)


def joined(first: Examples, second: Examples) -> Examples:
    """The clients of both. If only one marks populations, the other's examples are of the clients' population."""
    has_central = first.central is not None or second.central is not None
    masks = [np.zeros(len(part.targets), bool) if part.central is None else part.central for part in (first, second)]
    return Examples(
        np.concatenate([first.inputs, second.inputs]),
        np.concatenate([first.targets, second.targets]),
        np.concatenate([first.offsets, len(first.targets) + second.offsets]),
        np.concatenate([first.sizes, second.sizes]),
        first.kind,
        np.concatenate(masks) if has_central else None,
    )
