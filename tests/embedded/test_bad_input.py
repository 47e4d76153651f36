"""Bad input: one line that says what must hold, what came and what to do; exit code 2; nothing started or written."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import driftline
from driftline.errors import DriftlineError
from service.cli.main import app
from tests.driver.store_client import quadratic
from tests.study.documents import changed
from trainers.trial import document as documents

GOOD = quadratic().to_json()

BAD = [  # tests/study has all messages
    ("unknown key", changed(GOOD, "methodz", []), ["methodz", "methods"]),
    (
        "metric of another task",
        changed(GOOD, "objective.quality", "test_accuracy"),
        ["objective.quality", "test_accuracy"],
    ),
    ("more GPUs than there are", changed(GOOD, "resources", {"gpu": 64}), ["resources.gpu", "64 GPU"]),
    ("more cores than there are", changed(GOOD, "resources", {"cpus": 4096}), ["resources.cpus", "4096 CPU"]),
]


def written(folder: Path, study: dict[str, Any]) -> str:
    """The file of a study."""
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    return str(file)


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr as the command itself would give them."""
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, DriftlineError):
        return result.exception.exit_code, f"driftline: {result.exception}"
    return result.exit_code, result.output


@pytest.mark.parametrize(("study", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_one_line_and_exit_code_2(study: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    file = written(tmp_path, study)
    out = tmp_path / "out"
    code, line = run("run", file, "--out", str(out))
    assert code == 2
    assert "\n" not in line
    for word in words:
        assert word in line
    assert not out.exists()


def test_missing_data_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    documents._cached_task.cache_clear()  # another test of this process may have found the data
    study = changed(GOOD, "task", {"name": "mnist_by_writer"})
    study["objective"] = {"quality": "test_loss"}
    file = written(tmp_path, study)
    code, line = run("validate", file)
    assert code == 2
    assert "DATA_DIR" in line
    assert "\n" not in line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    code, line = run("run", str(tmp_path / "none.yaml"))
    assert code == 4
    assert "none.yaml" in line
    assert "\n" not in line


def test_the_process_itself(tmp_path: Path) -> None:
    """Once through the real command: exit code, one line on stderr for each error, nothing on stdout."""
    file = written(tmp_path, changed(GOOD, "methods[0].space", {"local_steps": 0, "client_lrr": 1}))
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "run", file, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.partition(": ")[2].partition(": ")[0] for line in done.stderr.splitlines()] == [
        "methods[0].space.client_lrr",
        "methods[0].space.local_steps",
        "methods[0].space.server_lr",
    ]
    assert all(line.startswith("driftline: ") for line in done.stderr.splitlines())
    assert not (tmp_path / "out").exists()


def test_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    file, out = written(tmp_path, GOOD), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    code, line = run("run", file, "--out", str(out))
    assert code == 2
    assert "thesis.tex" in line
    assert sorted(path.name for path in out.iterdir()) == ["thesis.tex"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    for out in (Path(file) / "out", tmp_path / ("x" * 300)):
        code, line = run("run", file, "--out", str(out))
        assert code == 2
        assert line.startswith("driftline: out: must be a folder to write into")
        assert "\n" not in line


@pytest.mark.parametrize("command", ["frontier", "resume"])
def test_a_file_that_is_no_database_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "driftline.db").write_text("this was never a database, whatever its name says")
    code, line = run(command, str(tmp_path))
    assert code == 5
    assert f"{tmp_path / 'driftline.db'} is not a Driftline database, or it is damaged (file is not a" in line
    assert "\n" not in line


@pytest.mark.parametrize("port", ["0", "-1", "65536", "http"])
def test_an_invalid_port_is_refused(port: str, tmp_path: Path) -> None:
    code, text = run("ui", str(tmp_path), "--port", port)
    assert code == 2
    assert "--port" in text


def test_version() -> None:
    assert run("--version") == (0, f"driftline {driftline.__version__}\n")


def test_the_process_ends_without_a_collection() -> None:
    script = """
import atexit, gc, sys
from service.cli.main import main
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # runs after what main registers
sys.argv = ["driftline", "--version"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[1:] == ["True"]


def test_help_has_every_command_under_a_heading() -> None:
    code, text = run("--help")
    assert code == 0
    headings = re.findall(r"^[╭+]\W+((?:\w+ )+)", text, re.MULTILINE)
    assert [heading.strip() for heading in headings] == [
        "Options",
        "Studies",
        "Results",
        "Methods and tasks",
        "Running a service",
        "Studies on a service",
        "Projects and tokens",
        "Theory",
    ]
    for command in ("validate", "run", "resume", "frontier", "compare", "methods", "tasks", "ui"):
        assert re.search(rf"^\W+{command} ", text, re.MULTILINE)
