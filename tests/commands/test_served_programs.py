"""Programs of people's own on a service, from the submission to the result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

import driftline
from driftline import Client, Study
from driftline.errors import InvalidSpec
from service.server.compose import Service

Run = Callable[..., Result]

DESCENT = """
from driftline import trial

t = trial.current()
x = 4.0
for r in t.rounds():
    x -= t["rate"] * 2 * x
    t.report(r, loss=x * x)
"""

STUDY: dict[str, Any] = {
    "name": "descent",
    "program": {"command": ["python", "-c", DESCENT], "metrics": {"loss": "falls"}},
    "methods": [{"label": "mine", "space": {"rate": {"float": [0.1, 0.4]}}}],
    "budget": {"trials_per_method": 2, "rounds": 3, "seeds": 1},
    "resources": {"gpu": 0},
}


@pytest.fixture
def settings() -> dict[str, str]:
    return {"DRIFTLINE_PROGRAMS": "true"}


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "descent.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    return file


@pytest.mark.parametrize("settings", [{}])
def test_a_service_refuses_programs_unless_its_operator_allows_them(
    service: Service, run: Run, study_file: Path, settings: dict[str, str]
) -> None:
    for command in (("submit", study_file), ("validate", study_file)):
        with pytest.raises(InvalidSpec, match=r"^program: this service runs no programs \(studies\.programs in its"):
            refused(run(*command))
    assert run("list").stdout == ""


def refused(result: Result) -> None:
    """Raises the error of a command."""
    assert result.exception is not None
    raise result.exception


def test_a_program_and_a_function_give_the_same_trials(service: Service) -> None:
    def train(t: Any) -> None:
        x = 4.0
        for r in t.rounds():
            x -= t["rate"] * 2 * x
            t.report(r, loss=x * x)

    keys = {key: value for key, value in STUDY.items() if key not in ("program", "methods")}
    entries = [{"label": "mine", "space": {"rate": driftline.Float(0.1, 0.4)}}]
    studies = [Study.from_json(STUDY), Study(program=train, objective={"quality": "loss"}, methods=entries, **keys)]
    with Client() as client:
        jobs = [client.submit(study) for study in studies]
        curves = [[curve["loss"] for curve in job.wait(timeout_s=120).curves().values()] for job in jobs]
    assert curves[0] == curves[1]
    assert [len(curve) for curve in curves[0]] == [3, 3, 3, 3]
