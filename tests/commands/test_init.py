"""`driftline init`: examples that validate, as they are written; no file is overwritten."""

import json
from pathlib import Path

import pytest

from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.study.examples import FIRST, examples
from driftline.study.spec import Study
from tests.command_line import printed, refusal

ROOT = Path(__file__).parents[2]


def test_the_default_is_a_small_study_without_remarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "driftline run study.yaml" in printed("init")
    study = Study.from_yaml("study.yaml")
    assert (study.labels, study.task["name"], study.check()) == (("fedavg", "fedprox"), "digits", [])
    assert study.budget.seeds == 6  # a verdict is possible
    fedavg, fedprox = (dict(entry.parameters()) for entry in study.methods)
    assert fedprox.pop("prox")
    assert fedprox == fedavg, "a comparison of methods, not of their ranges"
    assert "study 'first-study' is valid" in printed("validate", "study.yaml", "--no-estimate")


def test_every_example_is_listed_and_written(tmp_path: Path) -> None:
    listed = json.loads(printed("init", "--list", "--json"))
    names = [one["name"] for one in listed]
    assert names[0] == FIRST
    assert sorted(names) == sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))
    lines = printed("init", "--list").splitlines()
    for one, line in zip(listed, lines, strict=True):
        assert one["summary"].startswith(("Compares ", "Searches "))
        assert line.split(maxsplit=1) == [one["name"], one["summary"]]
        file = tmp_path / f"my {one['name']}.yaml"
        printed("init", str(file), "--from", one["name"])
        assert f"driftline run '{file}'" in file.read_text()
        assert "examples/" not in file.read_text()
        assert Study.from_yaml(file) == Study.from_yaml(examples()[one["name"]])


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("mine")
    error = refusal("init", str(file))
    assert isinstance(error, Conflict)
    assert str(error) == f"{file} exists and is not overwritten: give the name of a new file"
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["--from", "digit"], NotFound, 'no example "digit": did you mean digits?'),
        (["no/such/folder.yaml"], InvalidSpec, "FILE: cannot write 'no/such/folder.yaml': No such file or directory"),
        (["--json"], InvalidSpec, "--json: is for --list alone"),
    ],
)
def test_bad_input_writes_nothing(
    arguments: list[str], kind: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal("init", *arguments)
    assert (type(error), str(error)) == (kind, message)
    assert list(tmp_path.iterdir()) == []
