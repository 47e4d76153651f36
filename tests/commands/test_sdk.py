"""The SDK: jobs of a service elsewhere, a service that is none, and what notebooks show."""

import inspect
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from driftline import Client, Study
from driftline.client import environment
from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.sdk.job import StudyFailed
from driftline.sdk.notebook import job_html
from driftline.sdk.offline import OfflineService
from driftline.study.notebook import study_html
from driftline.wire.records import LabelProgress, StudyRecord
from service import settings
from service.server.compose import Service
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def test_a_job_of_a_service(service: Service, study_file: Path, gate: threading.Event) -> None:
    gate.clear()
    with Client() as client:
        assert not client.local
        job = client.submit(Study.from_yaml(study_file))
        until(lambda: job.state == "RUNNING")
        job.pause()
        gate.set()
        until(lambda: job.state == "PAUSED")
        job.resume().wait(timeout_s=120)
        states = [event.data["state"] for event in job.events() if event.kind == "state"]
        assert states[0] == "PENDING"
        assert states[-1] == "SUCCEEDED"
        assert {"RUNNING", "PAUSING", "PAUSED"} <= set(states)
        last = [event.id for event in job.events()][-1]
        assert list(job.events(after=last)) == []
        assert list(job.logs()) == list(job.logs(follow=True))
        by_bytes = job.frontier(cost="bytes")
        assert by_bytes.data["methods"]["fedavg"]["points"] != job.frontier().data["methods"]["fedavg"]["points"]
        with pytest.raises(InvalidSpec, match="train_loss"):
            job.frontier(quality="train_los")
        with pytest.raises(Conflict, match="nothing to retry"):
            job.retry()
        with pytest.raises(NotFound, match='has no trial "x"'):
            job.retry("x")
        job.extend(trials_per_method=4).wait(timeout_s=120)
        assert len(job.trials(phase="search")) == 8
        assert client.job(job.id).id == client.job("small").id == job.id
        with pytest.raises(NotFound, match="have: small"):
            client.job("0" * 26)
        assert "succeeded" in job._repr_html_()


def test_the_same_key_makes_one_study(service: Service, study_file: Path, gate: threading.Event) -> None:
    study = Study.from_yaml(study_file)
    with Client() as client:
        assert client.submit(study, key="mine").id == client.submit(study, key="mine").id
        assert client.submit(study).id != client.submit(study).id
        assert [record.name for record in client.records()] == ["small"] * 3


# ---- a service that is none

_RESULT: dict[str, Any] = {}


@pytest.fixture
def result(service: Service, study_file: Path) -> dict[str, Any]:
    """The result of a real study, run once."""
    if not _RESULT:
        with Client() as client:
            _RESULT.update(client.submit(Study.from_yaml(study_file)).wait().frontier().data)
    return dict(_RESULT)


def test_users_test_without_a_service(result: dict[str, Any], study_file: Path) -> None:
    offline = OfflineService(result)
    with Client(transport=offline) as client:
        study = Study.from_yaml(study_file)
        job = client.submit(study, key="k").wait(progress=True)
        assert client.submit(study, key="k").id == job.id
        assert [document["name"] for document in offline.submitted] == ["small"]
        assert job.frontier().table() == job.frontier().table()
        assert job.frontier().data == result
        assert job.compare("fedavg", "fedsgd")["why"]
        assert [event.data["state"] for event in job.events()] == ["SUCCEEDED"]
        assert list(job.logs(follow=True)) == []
        assert job.trials() == []
        assert client.job("small").id == job.id
        with pytest.raises(Conflict, match="not finished"):
            job.pause()
        assert job.extend(trials_per_method=9).state == "SUCCEEDED"
        with pytest.raises(Conflict, match="nothing to retry"):
            job.retry()
        with pytest.raises(NotFound):
            client.job("nothing")
        with pytest.raises(NotFound, match="fedprox"):
            job.compare("fedavg", "fedprox")


def test_users_test_what_they_do_when_a_study_fails(result: dict[str, Any], study_file: Path) -> None:
    failing = OfflineService(result, ends="FAILED", reason="no GPU")
    with Client(transport=failing) as client, pytest.raises(StudyFailed, match="no GPU"):
        client.submit(Study.from_yaml(study_file)).wait()
    with Client(transport=failing) as client:
        assert client.submit(Study.from_yaml(study_file)).retry().state == "FAILED"
    paused = OfflineService(result, ends="PAUSED")
    with Client(transport=paused) as client:
        job = client.submit(Study.from_yaml(study_file)).wait()
        assert job.cancel().state == "CANCELLED"


def test_the_offline_service_checks_studies_too(result: dict[str, Any], study_file: Path) -> None:
    study = Study.from_yaml(study_file)
    broken = study.model_copy(update={"task": {"name": "digitz"}})
    with Client(transport=OfflineService(result)) as client, pytest.raises(InvalidSpec, match="digitz"):
        client.submit(broken)


def test_the_recipe_of_the_page_works(result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recipe,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "OfflineService" in block]
    (tmp_path / "out" / "digits").mkdir(parents=True)
    (tmp_path / "out" / "digits" / "frontier.json").write_text(json.dumps(result))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(recipe, {})


def test_the_page_names_every_variable() -> None:
    module = f"{inspect.getdoc(settings)} {inspect.getdoc(environment)}"
    known = set(re.findall(r"DRIFTLINE_[A-Z_]+", module))
    assert len(known) >= 15
    assert {name for name in known if name not in PAGE} == {"DRIFTLINE_OUT", "DRIFTLINE_RAY_ADDRESS"}


# ---- what notebooks show


def record(**changes: Any) -> StudyRecord:
    values: dict[str, Any] = {
        "id": "01k6",
        "name": "<script>alert(1)</script>",
        "state": "RUNNING",
        "reason": "a < b",
        "spec": {},
        "progress": {"fed<avg": LabelProgress(search={"COMPLETE": 2, "DIVERGED": 1, "RUNNING": 1}, rounds_done=30)},
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    }
    return StudyRecord(**values | changes)


def test_a_notebook_shows_a_job_and_nothing_of_it_is_markup() -> None:
    shown = job_html(record(mlflow_url="https://mlflow/#/x?a=1&b=2"))
    assert "<script>" not in shown
    assert "fed&lt;avg" in shown
    assert "a &lt; b" in shown
    assert ">3 of 4</td>" in shown
    assert 'href="https://mlflow/#/x?a=1&amp;b=2"' in shown
    assert "href" not in job_html(record(mlflow_url="javascript:alert(1)"))


def test_a_notebook_shows_a_study(study_file: Path) -> None:
    study = Study.from_yaml(study_file)
    shown = study._repr_html_()
    assert "client_lr" in shown
    assert "3 trials a method, 20 rounds, 3 seeds" in shown
    assert shown == study_html(study.to_json())
