"""The fake service for users' tests, also as the page shows it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from driftline import Client, Study
from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.sdk.job import StudyFailed
from driftline.sdk.offline import OfflineService
from service.server.compose import Service

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")

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
        assert client.validate(study).fingerprint == study.fingerprint()
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
        client.delete("small")
        assert client.jobs() == []
        job = client.submit(study, key="k")
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
