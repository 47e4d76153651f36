"""Curves in messages: one list per metric, all of equal length, one of them ``round``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from driftline.wire.records import Record
from trainers import shown

Cell = bool | int | float | None
SEGMENT_ROUNDS = 256
"""Rounds in one stored segment: segment s holds rounds s·256 .. s·256 + 255."""


def _checked(columns: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    rounds = columns.get("round")
    if rounds is None:
        raise ValueError('columns need a list "round"')
    if not all(type(value) is int and value >= 0 for value in rounds):
        raise ValueError("rounds must be whole numbers from 0")
    if any(after <= before for before, after in itertools.pairwise(rounds)):  # type: ignore[operator]
        raise ValueError("rounds must increase")
    for name, column in columns.items():
        if len(column) != len(rounds):
            raise ValueError(f"column {shown(name)} must have {len(rounds)} values, one per round, got {len(column)}")
        for index, value in enumerate(column):
            if isinstance(value, float) and not math.isfinite(value):
                column[index] = None
    return columns


CurveColumns = Annotated[dict[str, list[Cell]], AfterValidator(_checked)]
"""``{"round": [0, 1, ...], "train_loss": [...], ...}``; None where a metric was not reported or not finite."""


class CurvesPage(Record):
    """Curves by trial id: of the requested trials, or a page of all trials of the study."""

    curves: dict[str, CurveColumns]
    next_page_token: str | None = None


def columns(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[Cell]]:
    """Columns of a trial's report lines, in the order of their rounds; the last line of a round wins.

    Args:
        lines: Report lines of one trial, each with ``round``; ``member`` and values that are not numbers are dropped.

    Returns:
        One list per metric; None where a line lacks it or the value is not finite.

    Examples:
        >>> columns([{"round": 0, "test_loss": 2.0}, {"round": 1, "train_loss": 1.5, "member": 3}])
        {'round': [0, 1], 'test_loss': [2.0, None], 'train_loss': [None, 1.5]}
    """
    by_round = {int(line["round"]): line for line in lines}
    ordered = [by_round[number] for number in sorted(by_round)]
    names = dict.fromkeys(["round"])
    for line in ordered:
        names |= dict.fromkeys(key for key, value in line.items() if key != "member" and _is_cell(value))
    return {name: [_cell(line.get(name)) for line in ordered] for name in names}


def merge(old: Mapping[str, list[Cell]], new: Mapping[str, list[Cell]]) -> dict[str, list[Cell]]:
    """Merges two tables by round; where both have a round, the whole row of the new one wins (an upsert).

    Examples:
        >>> merge({"round": [0, 1], "loss": [3.0, 2.0]}, {"round": [1, 2], "loss": [2.5, 1.0]})
        {'round': [0, 1, 2], 'loss': [3.0, 2.5, 1.0]}
    """
    return columns([*rows(old), *rows(new)]) if old else {name: list(column) for name, column in new.items()}


def rows(table: Mapping[str, list[Cell]]) -> list[dict[str, Cell]]:
    """The rows of a table of columns, one dictionary per round; None is kept.

    Examples:
        >>> rows({"round": [0, 1], "loss": [3.0, None]})
        [{'round': 0, 'loss': 3.0}, {'round': 1, 'loss': None}]
    """
    names = list(table)
    return [dict(zip(names, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _is_cell(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _cell(value: Any) -> Cell:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int) else None
