"""Curves as columns: what is refused."""

import json
import math

import pytest
from pydantic import TypeAdapter, ValidationError

from driftline.wire.curve_columns import CurveColumns, CurvesPage

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
