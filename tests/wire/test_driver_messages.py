"""What drivers send: contradictions are refused."""

import pytest
from pydantic import ValidationError

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Report, StartPack, TrialResult
from driftline.wire.records import Values


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
    report = Report(attempt=1, pack="p", reports={"t": encode({"round": [0], "loss": [1]})}, rounds_done=1)
    assert Report.model_validate_json(report.model_dump_json()) == report
