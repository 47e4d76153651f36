"""Records: what they refuse, and that JSON does not change them."""

import json
import math
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from driftline.study.spec import Study
from driftline.wire.records import StudyRecord, TrialRecord, Values

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


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


def test_a_study_is_read_when_it_is_needed_and_once(monkeypatch):
    spec = {
        "name": "small",
        "task": {"name": "digits"},
        "methods": [{"name": "fedavg"}],
        "budget": {"trials_per_method": 4, "rounds": 10, "seeds": 3},
    }
    read = []
    parse = Study.from_json
    monkeypatch.setattr(Study, "from_json", lambda document: read.append(document) or parse(document))
    one = StudyRecord(id="s", name="small", spec=spec, created_at=NOW, updated_at=NOW)
    assert StudyRecord.model_validate_json(one.model_dump_json()) == one
    assert read == []
    assert one.study is one.study
    assert read == [spec]
    assert one.study.budget.trials == 4 + 4 * 3
    assert StudyRecord.model_validate_json(one.model_dump_json()) == one
    assert "study" not in one.model_dump()
