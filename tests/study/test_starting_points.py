"""The start key of a study, in its canonical form."""

import json

import pytest

from driftline.errors import InvalidSpec
from driftline.study.spec import Study

from .test_spec import TEXT, study

START = TEXT.replace(
    "space: {window: {int: [5, 50]}}}",
    "space: {window: {int: [5, 50]}}}\n"
    "    start: [{schedule.window: '7', client_lr: 0, server.momentum: 9e-1}, {local_steps: 5.0}]",
)


def test_start_is_kept_in_the_types_of_the_space():
    one = study(START)
    assert one.methods[0].start == [
        {"client_lr": 0.0, "schedule.window": 7, "server.momentum": 0.9},
        {"local_steps": 5},
    ]
    assert [type(value) for value in one.methods[0].start[0].values()] == [float, int, float]
    assert type(one.methods[0].start[1]["local_steps"]) is int
    document = one.to_json()
    assert document["methods"][0]["start"] == one.methods[0].start
    assert "start" not in document["methods"][1]
    assert Study.from_json(json.loads(json.dumps(document))) == one
    assert one.fingerprint() != study().fingerprint()
    assert study(TEXT.replace("space: default", "space: default, start: []")).fingerprint() == study().fingerprint()


def test_start_must_fit_into_the_budget():
    assert study(START.replace("trials_per_method: 64", "trials_per_method: 2")).methods[0].start
    with pytest.raises(InvalidSpec) as error:
        study(START.replace("trials_per_method: 64", "trials_per_method: 1"))
    assert str(error.value) == (
        "methods[0].start: must hold at most 1 configurations, the trials_per_method of the budget, got 2"
    )
