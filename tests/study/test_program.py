"""Studies of a person's own program: their documents, and what is wrong with them, one line each."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from driftline.program_command import command_file
from driftline.study.directions import direction
from driftline.study.program import SERVED
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document

from .documents import at, changed, mistake

DOCUMENT: dict[str, Any] = {
    "name": "mine",
    "program": {
        "command": ["sh", "train.sh"],
        "metrics": {"bleu": "rises", "loss": "falls"},
        "costs": ["tokens", "bytes"],
        "checkpoints": True,
        "folder": "/",
    },
    "methods": [
        {
            "label": "fedavg",
            "fixed": {"algorithm": "avg", "nesterov": True, "momentum": 0.5},
            "space": {"client_lr": {"float": [1e-3, 1], "log": True}, "steps": {"choice": [1, 4]}},
            "constraints": ["client_lr * steps <= 2"],
            "start": [{"client_lr": 0.1}],
        },
        {"label": "mean", "space": {"kind": {"choice": ["a", "b"]}, "n": {"int": [1, 9]}}, "sampler": "random"},
    ],
    "objective": {"quality": "bleu", "cost": "tokens"},
    "budget": {"trials_per_method": 8, "rounds": 9, "rungs": "auto", "seeds": 2},
}


def test_its_canonical_form_is_what_people_write() -> None:
    study = Study.from_json(DOCUMENT)
    written = study.to_json()
    assert written["program"] == {**DOCUMENT["program"], "silence": 600.0, "grace": 30.0}
    assert written["methods"] == DOCUMENT["methods"]
    assert "task" not in written
    assert written["resources"]["packs"] == 1
    again = Study.from_json(json.loads(json.dumps(written)))
    assert (again, again.fingerprint()) == (study, study.fingerprint())
    assert study.check() == []
    assert any("sh train.sh" in line for line in study.outlook())
    assert "train.sh" in study._repr_html_()


def test_a_metric_gets_better_as_the_program_says_whatever_its_name() -> None:
    study = Study.from_json(changed(DOCUMENT, "objective.scale", {"start": 1, "best": 30}))
    assert direction(study.objective.quality) == "rises"
    assert direction("bleu") == "falls"
    assert direction(study.metric("loss")) == "falls"
    assert direction(copy.deepcopy(study).objective.quality) == "rises"
    assert study.check() == []


def test_the_trials_document_says_what_to_train() -> None:
    study = Study.from_json(DOCUMENT)
    values = {"algorithm": "avg", "client_lr": 0.1}
    document = trial_document(study, "fedavg", [values], 7)
    assert (document["hyperparameters"], document["seed"], document["rounds"]) == (values, 7, 9)
    assert document["program"]["command"] == ["sh", "train.sh"]


def test_only_what_trains_another_way_makes_another_study(tmp_path: Path) -> None:
    fingerprint = Study.from_json(DOCUMENT).fingerprint()
    assert Study.from_json(changed(DOCUMENT, "program.folder", str(tmp_path))).fingerprint() == fingerprint
    assert Study.from_json(changed(DOCUMENT, "program.env", {"A": "1"})).fingerprint() != fingerprint


def test_a_program_lies_beside_the_file_of_its_study(tmp_path: Path) -> None:
    text = "{name: a, program: {command: [sh], metrics: {loss: falls}}, methods: [{label: a, space: {}}],"
    (tmp_path / "study.yaml").write_text(f"{text} budget: {{trials_per_method: 8, rounds: 9}}}}")
    study = Study.from_yaml(tmp_path / "study.yaml")
    assert study.program.folder == str(tmp_path)
    assert study.objective.quality == "loss", "it is the only metric"


@pytest.mark.parametrize("word", ["./train now.sh", "train now.sh", "inside/../train now.sh", "python"])
def test_a_program_is_found_in_the_folder_of_the_study(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the working directory is; `python` is the one that runs Driftline, also if PATH has none."""
    folder = tmp_path / "a folder"
    (folder / "inside").mkdir(parents=True)
    (folder / "train now.sh").write_text("#!/bin/sh\n")
    (folder / "train now.sh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    document = changed(DOCUMENT, "program.command", [word])
    document["program"]["folder"] = str(folder)
    Study.from_json(document).check()


@pytest.mark.parametrize("word", ["python", "sh"])
def test_what_lies_beside_a_study_under_the_name_of_another_program_need_not_travel(word: str, tmp_path: Path) -> None:
    """A link to a Python, which would not be started, and a file that may not be executed."""
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "sh").write_text("notes")
    (tmp_path / "train.py").write_text("")
    program = {**DOCUMENT["program"], "command": [word, "train.py"], "files": ["train.py"], "folder": str(tmp_path)}
    Study.from_json(changed(DOCUMENT, "program", program)).check()


def test_relative_places_in_path_are_those_of_the_programs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "train").touch(mode=0o755)
    monkeypatch.chdir(tmp_path / "bin")  # where `.` and `bin` would mean something else
    found = command_file("train", str(tmp_path), "/usr/bin:bin")
    assert found == str(tmp_path / "bin" / "train")
    assert command_file("train", "/", ".") == "/train"


def test_a_service_has_none_of_a_programs_files_but_those_that_travel() -> None:
    program = {**DOCUMENT["program"], "command": ["./train"], "folder": SERVED}
    with pytest.raises(InvalidSpec, match=r"^program\.command: must be below one of program\.files, beside which"):
        Study.from_json(changed(DOCUMENT, "program", program)).check()
    Study.from_json(changed(DOCUMENT, "program", {**program, "files": ["train"], "archive": "0" * 64})).check()


WRONG: list[tuple[str, Any, str]] = [  # a place, what is written there, and what is said of it or of a place below
    ("methods[0].space.algorithm", 1, "must be given once"),
    ("methods[1].start", [{"n": 20}], "[0].n: "),
    ("task", "digits", "must be left out beside program: give one of the two"),
    ("batch_size", 3, "must be left out beside program, whose settings are its own"),
    ("resources", {"packs": 4}, ".packs: must be 1 for a program, which trains one trial"),
    ("program.command", [], "must be a list of a program and its"),
    ("program.command", "sh train.sh", "must be a list"),
    ("program.metrics.loss", "down", "must be falls or rises"),
    ("program.metrics", {}, "must not be empty"),
    ("program.costs", ["seconds"], "must not be seconds, which Driftline"),
    ("program.costs", ["loss"], "must name each cost once, and no metric"),
    ("program.costs", ["bytes", "bytes_up"], "must be bytes, or bytes_up"),
    ("program.metrics.a b", "falls", "must begin with a letter"),
    ("program.cmd", [], "unknown key: known are"),
    ("program.files", ["../a"], "[0]: must be a path below the folder"),
    ("program.files", ["a\x00b"], "[0]: must be a path below the folder"),
    ("program.env", {"A": "a\x00b"}, ".A: must hold no null character"),
    ("program.env", {"RAY_ADDRESS": "x"}, ".RAY_ADDRESS: must be the name of a"),
    ("objective.quality", "los", "must be one of program.metrics, got"),
    ("objective.cost", "token", "must be rounds, seconds, tokens, bytes"),
    ("methods[0].server", "sgd", "unknown key"),
    ("methods[0]", {"space": {}}, ".label: must be given"),
    ("methods[0].space", "default", "must be a mapping of the program's"),
    ("methods[0].fixed.a", [1], "must be a number, a string"),
    ("methods[1].constraints", ["m <= 2"], "[0]: "),
    ("program.command", ["no-such"], "must begin with a program"),
    ("program.command", ["./tmp"], 'must begin with a program that can be started, got "./tmp", which is no file'),
    ("program", {**DOCUMENT["program"], "command": ["bin/sh"], "files": ["etc/hosts"]}, ".command: must be below"),
    ("program.files", ["no-such"], "must exist in /, got"),
    ("budget.branches", 2, "needs an entry whose schedule"),
]


@pytest.mark.parametrize(("place", "value", "said"), WRONG)
def test_a_wrong_document_is_one_line(place: str, value: Any, said: str) -> None:
    error = str(mistake(changed(DOCUMENT, place, value)))
    assert error.startswith(at(place, said))
    assert "\n" not in error


def test_a_program_without_checkpoints_has_no_rungs() -> None:
    with pytest.raises(InvalidSpec, match=r"^budget\.rungs: must be left out, or have program\.checkpoints"):
        Study.from_json(changed(DOCUMENT, "program.checkpoints", False)).check()


def test_a_function_is_a_program() -> None:
    document = {key: DOCUMENT[key] for key in ("name", "budget")} | {"methods": [{"label": "a", "space": {"x": 1}}]}
    document["budget"] = {"trials_per_method": 8, "rounds": 9}

    def train(t: Any) -> None:
        t.report(1, test_accuracy=t["x"])

    study = Study(**document, program=train, objective={"quality": "test_accuracy"})
    assert study.program.metrics == {"test_accuracy": "rises"}
    assert study.program.source.startswith("def train(")
    assert Study.from_json(study.to_json()) == study
    assert study.check() == []
    other = Study(**document, program=lambda t: None, objective={"quality": "test_accuracy"})
    assert other.fingerprint() != study.fingerprint()
    with pytest.raises(InvalidSpec, match=r"^objective.quality: must be given: the metric that the function reports"):
        Study(**document, program=train)
    lock = __import__("threading").Lock()
    with pytest.raises(InvalidSpec, match=r"^program: must be a function that can be pickled"):
        Study(**document, program=lambda t: lock, objective={"quality": "loss"})
