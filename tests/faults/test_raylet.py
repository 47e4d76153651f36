"""Ray's own daemon is killed under a driver that has started it: the study goes on, no round is missing or twice."""

import os
import signal
from pathlib import Path

import pytest

from tests.commands.processes import begun, running
from tests.waiting import until


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_a_study_survives_the_death_of_rays_daemon(tmp_path: Path) -> None:
    with begun(tmp_path / "home") as (processes, _, client, study):
        (raylet,) = running(processes.home, "/raylet/raylet")
        os.kill(raylet, signal.SIGKILL)
        until(lambda: client.study(study).finished, 600)
        record = client.study(study)
        assert record.state == "SUCCEEDED", record.reason
        trials = client.trials(study)
        assert [trial.state for trial in trials] == ["COMPLETE"] * 4
        assert max(trial.attempt for trial in trials) >= 2  # on a busy machine Ray may not start the first time
        curves = client.curves(study)
        assert all(curve["round"] == list(range(3001)) for curve in curves.values())
        until(lambda: len(running(processes.home, "/raylet/raylet")) == 0, 60)  # nothing of either Ray is left
