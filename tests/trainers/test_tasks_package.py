"""A task and a model out of an installed package: examples/task-package, installed and run as its README says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainers import SpecError, parse

ROOT = Path(__file__).parents[2]
TRIAL = {
    "task": {"name": "compass", "clients": 10, "turn": 0.1, "model": {"name": "smoothed_softmax", "smoothing": 0.2}},
    "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.5, "local_steps": 5},
    "rounds": 20,
    "dtype": "float64",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the package is installed."""
    pytest.importorskip("setuptools", reason="install setuptools to build the example package")
    folder = tmp_path_factory.mktemp("package")
    source, target = folder / "source", folder / "site"
    shutil.copytree(ROOT / "examples" / "task-package", source)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(source)],
        check=True,
        timeout=120,
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(ROOT)])}


def run(environment: dict[str, str], *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], input=stdin, env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_trial_runs_with_its_task_and_model(installed: dict[str, str]) -> None:
    done = run(installed, "-m", "trainers.run", "-", stdin=json.dumps(TRIAL))
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["round"] for line in lines] == list(range(21))
    assert lines[0]["test_loss"] == pytest.approx(1.3862943611198906, rel=1e-12)  # log 4
    assert lines[-1]["test_loss"] < 1.2
    assert lines[-1]["test_accuracy"] > 0.9


def test_its_mistakes_and_settings_are_shown_like_ours(installed: dict[str, str]) -> None:
    wrong = TRIAL | {"task": {"name": "compass", "model": {"name": "smoothed_softmax", "smoothing": 1}}}
    done = run(installed, "-m", "trainers.run", "-", stdin=json.dumps(wrong))
    assert done.returncode == 2
    assert "task.model.smoothing must be in [0, 1), got smoothing=1" in done.stderr
    shown = run(installed, "-m", "service.cli", "tasks", "compass")
    assert shown.returncode == 0, shown.stderr
    assert "deviation of the clients' angles; at least 0; radians; default 0.3; 0 is clients alike" in shown.stdout


def test_without_the_package_there_is_no_such_task() -> None:
    with pytest.raises(SpecError, match=r'task\.name: no task "compass"'):
        parse(TRIAL)
