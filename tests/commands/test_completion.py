"""Completion in the shell: names that begin as typed, and nothing after an error."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from driftline.client.environment import environment
from service.cli.main import app
from service.server.compose import Service

from .conftest import STUDY

Run = Callable[..., Result]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No service is set."""
    monkeypatch.delenv("DRIFTLINE_URL", raising=False)
    environment.cache_clear()


def suggested(*words: str) -> list[str]:
    """What bash gets for a command line, of which the last word is incomplete."""
    variables = {
        "_DRIFTLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("driftline", *words)),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(app, [], prog_name="driftline", env=variables)
    assert result.exit_code == 0, result.output
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("methods", "fedp"), ["fedprox"]),
        (("methods", "plat"), ["plateau"]),
        (("methods", "zzz"), []),
        (("tasks", "di"), ["digits"]),
        (("init", "--from", "fir"), ["first"]),
        (("frontier", "out/x", "--cost", "cl"), ["client_gradients"]),
        (("frontier", "out/x", "--cost", "ti"), ["time"]),
    ],
)
def test_names(words: tuple[str, ...], names: list[str], nowhere: None) -> None:
    assert suggested(*words) == names


def test_labels_of_a_folder(tmp_path: Path, nowhere: None) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY))
    assert suggested("compare", str(tmp_path), "") == ["fedavg", "fedsgd"]
    assert suggested("compare", str(tmp_path), "fedavg", "feds") == ["fedsgd"]
    (tmp_path / "study.yaml").write_text("methods: 1")
    assert suggested("compare", str(tmp_path), "") == []


def test_studies_and_labels_of_a_service(service: Service, run: Run, study_file: Path) -> None:
    study = run("submit", study_file, "--wait").stderr.split("submitted as ")[1].split()[0]
    assert suggested("frontier", "") == ["small"]
    assert suggested("watch", "sm") == ["small"]
    assert suggested("watch", study[:10]) == [study]
    assert suggested("compare", "small", "") == ["fedavg", "fedsgd"]
    assert suggested("compare", "none", "") == []


def test_no_service_means_no_suggestions(nowhere: None) -> None:
    assert suggested("watch", "") == []
    assert suggested("watch", "--url", "http://127.0.0.1:1", "") == []


def test_names_of_methods_are_listed_without_torch() -> None:
    text = "import sys; from service.cli import completion as c; print(c.method_names('fedp'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "['fedprox'] False\n"
