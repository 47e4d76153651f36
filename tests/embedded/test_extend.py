"""A study in this process that is given more: a larger budget, failed trials once more; its drivers need no Ray."""

import csv
from pathlib import Path
from typing import Any

import pytest

from driftline import Client, Study
from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.sdk.job import Job
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.local_studies import EmbeddedJob
from tests import mlflow_warnings
from tests.command_line import printed, refusal
from tests.commands.conftest import STUDY, Drivers
from tests.embedded.stored import in_mlflow, shown
from tests.waiting import until

pytestmark = [pytest.mark.slow, *mlflow_warnings.IGNORED]  # MLflow's database alone takes ten seconds to be made


@pytest.fixture
def without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drivers:
    drivers = Drivers(tmp_path / "checkpoints")

    def drive(run: EmbeddedRun, client: Any, study_id: str, stop: Any) -> None:
        drivers.drive(client, study_id, stop)

    monkeypatch.setattr(EmbeddedRun, "_drive", drive)
    return drivers


def rows(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return {row["trial"]: row for row in csv.DictReader(file)}


def budgets(folder: Path) -> list[str]:
    """The numbers of trials a method that MLflow shows for the study."""
    shown = "select value from params natural join runs where key = 'trials_per_method' and lifecycle_stage = 'active'"
    return in_mlflow(folder, shown)


def attempts(job: Job) -> dict[str, int]:
    """Under which attempt each trial was trained."""
    return {trial.id: trial.attempt for trial in job._api.trials(job.id)}


@pytest.mark.usefixtures("without_ray")
def test_an_extended_study_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    with Client(out=tmp_path) as client:
        job = client.submit(Study(**STUDY))
        job.wait()
        first = rows(tmp_path / "small")
        assert budgets(tmp_path / "small") == ["3"]
        assert len(first) == 2 * (3 + 3)
        taken = attempts(job)
        before, curves = shown(tmp_path / "small"), client.job("small").frontier().data
        with pytest.raises((Conflict, InvalidSpec)):
            job.extend(trials_per_method=2)  # less than there are
        job.extend(trials_per_method=5).wait()
        second = rows(tmp_path / "small")
        assert budgets(tmp_path / "small") == ["5"]
        assert {row["state"] for row in second.values()} <= {"COMPLETE", "DIVERGED"}
        searched = [row for row in second.values() if row["phase"] == "search"]
        assert len(searched) == 2 * 5
        again = attempts(job)
        assert {trial: again[trial] for trial in taken} == taken  # none was trained again
        assert shown(tmp_path / "small") - before == len(second) - len(first)
        before, after = (data["methods"]["fedavg"]["granted"] for data in (curves, job.frontier().data))
        assert after["trials"] >= before["trials"] + 2  # and more, if one of them is better and is confirmed
    with Client(out=tmp_path) as client:  # and another day, in another process
        job = client.job("small")
        assert isinstance(job, EmbeddedJob)
        assert job.state == "SUCCEEDED"
        job.extend(trials_per_method=6).wait()
        assert budgets(tmp_path / "small") == ["6"]
        assert len([row for row in rows(tmp_path / "small").values() if row["phase"] == "search"]) == 2 * 6
        assert job.mlflow_url == f"driftline ui {tmp_path / 'small'}"


def test_a_paused_study_of_a_folder_resumes(without_ray: Drivers, tmp_path: Path) -> None:
    without_ray.gate.clear()
    with Client(out=tmp_path) as client:
        job = client.submit(Study(**STUDY))
        until(lambda: job.state == "RUNNING")
        job.pause()
        without_ray.gate.set()
        until(lambda: job.state == "PAUSED")
        without_ray.gate.clear()
        job.resume()
        until(lambda: job.state == "RUNNING")
        job.pause()
        without_ray.gate.set()
        until(lambda: job.state == "PAUSED")
    with Client(out=tmp_path) as client:  # and another day, in another process
        assert client.job("small").resume().wait(timeout_s=120).state == "SUCCEEDED"
        with pytest.raises(Conflict):
            client.job("small").resume()


def ends(folder: Path) -> list[str]:
    """How the runs of trials ended, as MLflow shows it."""
    query = "select status from runs join tags using (run_uuid) where key = 'driftline.phase'"
    return in_mlflow(folder, query)


def test_failed_trials_of_a_folder_run_again(without_ray: Drivers, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    without_ray.deaths = 6  # two trials' three
    with Client(out=tmp_path) as client:
        job = client.submit(Study(**STUDY)).wait()
        failed = [trial for trial, row in rows(folder).items() if row["state"] == "FAILED"]
        assert len(failed) == 2
        with pytest.raises(Conflict, match=f"local studies are folders: delete {folder}"):
            client.delete("small")
        assert ends(folder).count("FAILED") == 2
        taken = attempts(job)
        job.retry(failed[0]).wait()
        assert [trial for trial, row in rows(folder).items() if row["state"] == "FAILED"] == failed[1:]
    assert "fedavg: recommendations" in printed("retry", str(folder))  # and another day, in another process
    assert {row["state"] for row in rows(folder).values()} == {"COMPLETE"}
    assert set(ends(folder)) == {"FINISHED"}
    with Client(out=tmp_path) as client:
        again = attempts(client.job("small"))
        assert {trial: again[trial] - taken[trial] for trial in taken} == {
            trial: int(trial in failed) for trial in taken
        }
        assert all(not method["failed"] for method in client.job("small").frontier().data["methods"].values())
    assert "fedavg: recommendations" in printed("extend", str(folder), "--trials", "4")
    assert len([row for row in rows(folder).values() if row["phase"] == "search"]) == 2 * 4
    assert budgets(folder) == ["4"]
    with pytest.raises(InvalidSpec, match=r"driftline extend \S+ --trials 5 "), Client(out=tmp_path) as client:
        client.submit(Study(**{**STUDY, "budget": {**STUDY["budget"], "trials_per_method": 5}}))
    assert isinstance(refusal("retry", str(folder)), Conflict)
    assert isinstance(refusal("retry", str(folder), "--trial", "x"), NotFound)
