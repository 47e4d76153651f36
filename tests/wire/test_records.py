"""Records, curves and the driver's bodies: what they refuse, and that JSON does not change them."""

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from driftline.wire.curve_columns import CurveColumns, CurvesPage, columns, merge, rows
from driftline.wire.driver_messages import NewTrial, Report, StartPack, TrialResult
from driftline.wire.records import StudyRecord, TrialRecord, Values

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
COLUMNS = TypeAdapter(CurveColumns)


def trial(**values):
    base = {
        "id": "s.a.s00000",
        "study_id": "s",
        "label": "a",
        "phase": "search",
        "number": 0,
        "seed": 0,
        "configuration": 0,
    }
    return TrialRecord(**base | {"hyperparameters": {}, "created_at": NOW, "updated_at": NOW} | values)


def test_a_trial_round_trips_through_json():
    one = trial(
        hyperparameters={"client_lr": 0.0, "local_steps": 5, "gradient_weights": [0.0, 1.0], "clip_norm": None},
        state="COMPLETE",
        values=Values(quality=0.9, speed=-1.5),
        plan={"oracle": "closed_form", "width": 4},
    )
    back = TrialRecord.model_validate_json(one.model_dump_json())
    assert back == one
    assert type(back.hyperparameters["local_steps"]) is int
    assert TrialRecord.model_validate(json.loads(json.dumps(one.model_dump(mode="json")))) == one


@pytest.mark.parametrize(
    ("state", "finished"),
    [
        ("WAITING", False),
        ("RUNNING", False),
        ("COMPLETE", True),
        ("DIVERGED", True),
        ("FAILED", True),
        ("CANCELLED", True),
    ],
)
def test_finished_trials(state, finished):
    assert trial(state=state).finished is finished


def test_unknown_keys_and_states_are_refused():
    with pytest.raises(ValidationError):
        trial(colour="red")
    with pytest.raises(ValidationError):
        trial(state="PRUNED")
    with pytest.raises(ValidationError):
        Values(quality=math.nan, speed=0)


def test_a_study_record_round_trips():
    one = StudyRecord(
        id="s",
        name="n",
        spec={"name": "n"},
        progress={"a": {"search": {"RUNNING": 2}, "rounds_done": 10, "rounds_total": 400}},
        created_at=NOW,
        updated_at=NOW,
    )
    assert StudyRecord.model_validate_json(one.model_dump_json()) == one
    assert not one.finished
    assert one.progress["a"].search == {"RUNNING": 2}


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


def test_the_drivers_bodies_refuse_contradictions():
    with pytest.raises(ValidationError, match="configuration"):
        NewTrial(label="a", phase="confirmation", number=0, seed=1, hyperparameters={})
    with pytest.raises(ValidationError, match="configuration must be the number of a search trial, 0, got 3"):
        NewTrial(label="a", phase="search", number=0, seed=1, configuration=3, hyperparameters={})
    with pytest.raises(ValidationError, match="values belong to a COMPLETE trial"):
        TrialResult(trial="t", state="COMPLETE")
    with pytest.raises(ValidationError, match="values belong to a COMPLETE trial"):
        TrialResult(trial="t", state="DIVERGED", values=Values(quality=0, speed=0))
    with pytest.raises(ValidationError):
        StartPack(attempt=1, pack="p", trials=[])
    report = Report(attempt=1, pack="p", reports={"t": {"round": [0], "loss": [1]}}, rounds_done=1)
    assert Report.model_validate_json(report.model_dump_json()) == report
