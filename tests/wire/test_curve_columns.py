"""Curves as columns: what is refused, and how newer rounds are merged in."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from driftline.wire.curve_columns import CurveColumns, CurvesPage, columns, merge, rows

COLUMNS = TypeAdapter(CurveColumns)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"loss": [1.0]}, 'columns need a list "round"'),
        ({"round": [0, 0]}, "rounds must increase"),
        ({"round": [0, 1.5]}, "rounds must be whole numbers"),
        ({"round": [-1]}, "rounds must be whole numbers from 0"),
        ({"round": [0, 1], "loss": [1.0]}, 'column "loss" must have 2 values'),
        ({"round": [0], "loss": ["x"]}, "valid"),
    ],
)
def test_bad_columns_are_refused(bad, message):
    with pytest.raises(ValidationError, match=message):
        COLUMNS.validate_python(bad)


def test_what_is_not_finite_becomes_null():
    page = CurvesPage(curves={"t": {"round": [0, 1], "loss": [math.inf, 1.0], "diverged": [False, True]}})
    assert json.loads(json.dumps(page.model_dump(mode="json"), allow_nan=False))["curves"]["t"] == {
        "round": [0, 1],
        "loss": [None, 1.0],
        "diverged": [False, True],
    }
    assert columns([{"round": 0, "loss": math.nan}]) == {"round": [0], "loss": [None]}


def test_columns_of_lines():
    lines = [
        {"round": 2, "loss": 3.0, "params": [1.0], "member": 1},
        {"round": 0, "test_loss": 9.0, "diverged": False},
        {"round": 2, "loss": 4.0},
    ]
    assert columns(lines) == {"round": [0, 2], "test_loss": [9.0, None], "diverged": [False, None], "loss": [None, 4.0]}
    assert columns([]) == {"round": []}


@given(st.lists(st.integers(0, 40), unique=True), st.lists(st.integers(0, 40), unique=True))
def test_merge_is_an_upsert(old, new):
    before = columns([{"round": number, "loss": float(number)} for number in old])
    after = columns([{"round": number, "loss": -float(number), "extra": 1} for number in new])
    merged = merge(before, after)
    assert COLUMNS.validate_python(merged) == merged
    assert {row["round"]: row["loss"] for row in rows(merged)} == {n: float(n) for n in old} | {
        n: -float(n) for n in new
    }
    assert merge(merged, after) == merged
