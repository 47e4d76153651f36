"""Records: what they refuse, and that JSON does not change them."""

import json
import math

import pytest
from pydantic import ValidationError

from driftline.study.spec import Study
from driftline.wire.records import StudyRecord, TrialRecord, Values

from .made_records import study_record, trial_record


def test_a_trial_round_trips_through_json():
    one = trial_record(
        hyperparameters={"client_lr": 0.0, "local_steps": 5, "gradient_weights": [0.0, 1.0], "clip_norm": None},
        state="COMPLETE",
        values=Values(quality=0.9, speed=-1.5),
        plan={"oracle": "closed_form", "width": 4},
    )
    back = TrialRecord.model_validate_json(one.model_dump_json())
    assert back == one
    assert type(back.hyperparameters["local_steps"]) is int
    assert TrialRecord.model_validate(json.loads(json.dumps(one.model_dump(mode="json")))) == one


def test_finished_trials():
    states = ("WAITING", "RUNNING", "COMPLETE", "DIVERGED", "FAILED", "CANCELLED")
    assert [trial_record(state=state).finished for state in states] == [False, False, True, True, True, True]


def test_unknown_keys_and_states_are_refused():
    with pytest.raises(ValidationError):
        trial_record(colour="red")
    with pytest.raises(ValidationError):
        trial_record(state="PRUNED")
    with pytest.raises(ValidationError):
        Values(quality=math.nan, speed=0)


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
    one = study_record(spec=spec)
    assert StudyRecord.model_validate_json(one.model_dump_json()) == one
    assert read == []
    assert one.study is one.study
    assert read == [spec]
    assert one.study.budget.trials == 4 + 4 * 3
    assert StudyRecord.model_validate_json(one.model_dump_json()) == one
    assert "study" not in one.model_dump()
