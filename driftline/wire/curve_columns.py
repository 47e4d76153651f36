"""Curves in messages: one list per metric, all of equal length, one of them ``round``."""

from __future__ import annotations

import itertools
import math
from typing import Annotated

from pydantic import AfterValidator

from driftline.wire.curve_codec import Cell
from driftline.wire.records import Record
from trainers import shown


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
