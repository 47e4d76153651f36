"""`driftline theory` shows what `python -m trainers.theory` prints."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftline.errors import InvalidSpec
from service.cli.main import app
from tests.command_line import printed, refusal
from trainers.theory.__main__ import main

POINT = ["theory", "point", "--mu", "1", "--L", "10", "--client-lr", ".05", "--weights", "1:10"]


def test_point_is_a_readable_table() -> None:
    rows = [line.split("  ") for line in printed(*POINT).splitlines()]
    table = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows if len(row) > 1}
    assert table["condition number of the surrogate"] == ["2.4897", "kappa; the loss has 10"]
    assert table["linear rate of a round"] == ["0.426884", "rho; training without local work has 0.818182"]
    assert table["suboptimality"] == ["0.334251", "delta, of 1; one-shot averaging has 0.519494"]
    assert table["rounds to a tenth of the error"][0] == "2.705"


def test_json_is_that_of_the_trainers(capsys: pytest.CaptureFixture[str]) -> None:
    extra = ["--server", "heavy_ball", "--prox", "0.5"]
    main([*POINT[1:], *extra])
    assert json.loads(printed(*POINT, *extra, "--json")) == json.loads(capsys.readouterr().out)
    main(["cusp", *POINT[2:6], "--client-lr", "0.001"])
    assert json.loads(printed("theory", "cusp", *POINT[2:6], "--client-lr", "0.001", "--json")) == json.loads(
        capsys.readouterr().out
    )


def test_cusp_and_counterexample() -> None:
    assert "255.434 steps" in printed("theory", "cusp", *POINT[2:6], "--client-lr", "0.001")
    assert "what holds" in printed("theory", "counterexample", "prox")


def test_a_rate_beyond_the_theory_computes_and_warns() -> None:
    arguments = [*POINT[:6], "--client-lr", "0.2", "--weights", "1:10"]
    result = CliRunner().invoke(app, arguments)
    assert "warning: client_lr must be below 1 / (L + prox)" in result.stderr
    assert "never" in result.stdout
    assert "undefined" in result.stdout


def test_figure_writes_its_files(tmp_path: Path) -> None:
    said = printed("theory", "figure", "a3", "--out", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A3.csv", "A3.png", "A3.svg"]
    assert said.count("A3.") == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*POINT, "--mu", "20"], "L: must be finite and at least mu=20"),
        ([*POINT, "--server", "nestrov", "--json"], "did you mean nesterov"),
        ([*POINT, "--weights=0,0"], "--weights: must have one above 0"),
        ([*POINT, "--weights=abc"], '--weights: must be a whole number, got "abc" (1:K, K, or numbers'),
        (["theory", "figure", "A6"], "figure must be one of A1"),
        (["theory", "cusp", "--mu", "1", "--L", "10", "--client-lr", "0"], "client_lr"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(arguments: list[str], words: str) -> None:
    error = refusal(*arguments)
    assert isinstance(error, InvalidSpec)
    assert error.exit_code == 2
    assert words in str(error)
    assert "\n" not in str(error)
