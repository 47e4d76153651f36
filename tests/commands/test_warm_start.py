"""--warm-start of `driftline run` and `driftline submit`: which study begins."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline import Frontier
from driftline.results.document import Reading, frontier_document
from driftline.sdk import shortcuts
from driftline.study.spec import Study
from driftline.study.yaml_files import dumped, parse
from service.cli import jobs
from service.cli import run as run_command
from tests.command_line import printed
from tests.driver.store_client import quadratic
from tests.results.samples import study as sample_trials


@pytest.fixture
def file(tmp_path: Path) -> Path:
    space = {"client_lr": {"float": [1e-9, 1e9], "log": True}, "server_lr": 1.0, "local_steps": 1}
    study = quadratic(
        name="1e3", methods=[{"name": "fedavg", "space": space}], budget={"trials_per_method": 16, "rounds": 2}
    )
    path = tmp_path / "study.yaml"
    path.write_text(dumped(study.to_json()), encoding="utf-8")
    return path


@pytest.fixture
def first(file: Path) -> Frontier:
    reading = Reading("test_accuracy", "rounds")
    document = frontier_document("digits", sample_trials(("fedavg",), 16, confirm=3), reading, 200)
    return Frontier({**document, "specification": Study.from_yaml(file).to_json()})


def test_run_starts_from_a_folder(file: Path, first: Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, Any] = {}

    def run(folder: Path, study: Study, *, source: str, **options: Any) -> Any:
        begun.update(study=study, source=source, **options)
        return nullcontext()

    monkeypatch.setattr(run_command, "EmbeddedRun", run)
    monkeypatch.setattr(run_command, "_follow", lambda run, as_json: None)
    monkeypatch.setattr(shortcuts, "frontier", {Path("out/first"): first}.__getitem__)
    printed("run", str(file), "--out", "out/second", "--warm-start", "out/first")
    assert begun["study"] == first.warm_started(Study.from_yaml(file)) != Study.from_yaml(file)
    assert Study.from_json(parse(begun["source"])) == begun["study"]

    monkeypatch.delenv("DRIFTLINE_RAY_ADDRESS", raising=False)
    printed("run", str(file), "--out", "out/third", "--seed", "7", "--cores", "3")
    assert begun["study"].seed == Study.from_json(parse(begun["source"])).seed == 7
    assert begun["cores"] == 3


def test_validate_checks_the_study_that_would_begin(
    file: Path, first: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortcuts, "frontier", {"out/first": first}.__getitem__)
    checked = json.loads(printed("validate", str(file), "--no-estimate", "--json", "--warm-start", "out/first"))
    assert checked["spec"] == first.warm_started(Study.from_yaml(file)).to_json()


def test_submit_starts_from_a_study(file: Path, first: Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Study] = []

    def submit(study: Study, key: str | None) -> Any:
        begun.append(study)
        return SimpleNamespace(id="second")

    client = SimpleNamespace(job={"first": SimpleNamespace(frontier=lambda: first)}.__getitem__, submit=submit)
    monkeypatch.setattr(jobs, "connected", lambda url, token_file: nullcontext(client))
    assert printed("submit", str(file), "--warm-start", "first") == "second\n"
    assert begun == [first.warm_started(Study.from_yaml(file))]
