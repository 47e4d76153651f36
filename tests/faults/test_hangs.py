"""A worker and then the driver of a running study are stopped with SIGSTOP: alive as processes, but silent."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from driftline.study.spec import Study
from tests.commands.processes import SMALL, begun, running
from tests.uninterrupted import in_one_go, plain
from tests.waiting import until


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_workers_and_then_the_driver_stop_under_a_study(tmp_path: Path) -> None:
    settings = {"DRIFTLINE_HANG_SECONDS": "30", "DRIFTLINE_SILENT_SECONDS": "3"}
    with begun(tmp_path / "home", **settings) as (processes, _, client, study):
        (driver,) = running(processes.home, f"--study={study}")
        workers = running(processes.home, "ray::Worker")
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: any("its worker hung" in line.text for line in client.logs(study)))
        until(lambda: all(not exists(pid) for pid in workers))
        before = client.study(study).progress["fedavg"].rounds_done
        until(lambda: client.study(study).progress["fedavg"].rounds_done > before)
        assert running(processes.home, f"--study={study}") == [driver]

        belongings = running(processes.home, "ray")
        os.kill(driver, signal.SIGSTOP)
        for pid in running(processes.home, "ray::Worker"):
            os.kill(pid, signal.SIGSTOP)  # else they end with their driver's Ray
        until(lambda: all(not exists(pid) for pid in [driver, *belongings]))
        until(lambda: client.study(study).finished, 400)
        record = client.study(study)
        assert record.state == "SUCCEEDED", record.reason
        trials = client.trials(study)
        assert [trial.state for trial in trials] == ["COMPLETE"] * 4
        curves, whole = client.curves(study), Study.from_json(SMALL)
        alone = [curve for number in range(2) for curve in in_one_go(whole, *whole.labels, number)]
        assert all(curve["round"] == list(range(SMALL["budget"]["rounds"] + 1)) for curve in curves.values())
        assert [plain(curves[trial.id]) for trial in trials[:2]] == alone  # of those that were stopped
        assert {line.attempt for line in client.logs(study)} == {1, 2}  # one driver was lost, and counted once
        said = processes.said()
        assert said.count("is killed: it hangs") == 1
        until(lambda: not running(processes.home, "ray") and not running(processes.home, "service.driver"))


def exists(pid: int) -> bool:
    """Whether a process lives."""
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    return False
