"""Text from workers and drivers cannot control a reader's terminal or spreadsheet."""

import csv
import io
import json
import logging
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from driftline.results.document import frontier_document
from driftline.results.show.escaped_text import escaped, escaped_lines, spreadsheet_cell
from driftline.results.show.text_table import table
from driftline.results.show.trials_csv import trials_csv
from service.cli import terminal
from service.cli.terminal import echo
from service.log_file import VisibleFormatter

from .samples import Chosen, curve

HOSTILE = "lost\x1b]0;title\x07\r\nall is \u202ewell\u2028\x9b2J"


def test_nothing_is_left_that_moves_a_cursor_or_turns_text_around() -> None:
    shown = escaped(HOSTILE)
    assert shown == r"lost\u001b]0;title\u0007\r\nall is \u202ewell\u2028\u009b2J"
    assert escaped(shown) == shown
    assert escaped("Fédération 学習 — ok") == "Fédération 学習 — ok"


def test_json_stays_json_of_the_same_value() -> None:
    hostile = {HOSTILE: [HOSTILE, "tag \U000e0041, delete \x7f"]}
    shown = escaped_lines(json.dumps(hostile, indent=2, ensure_ascii=False))
    assert json.loads(shown) == hostile
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize("sign", "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\u2212")
@pytest.mark.parametrize("before", ["", " ", "\u3000", '"', "x;", 'x; "', "x,", "1|", ";"])
def test_a_formula_is_text(before: str, sign: str) -> None:
    cell = spreadsheet_cell(f'{before}{sign}HYPERLINK("x")')
    beginnings = [field.lstrip(' \u3000"') for field in re.split("[;,|]", cell)]
    assert not any(unicodedata.normalize("NFKC", field[:1]) in (*"=+-@\u2212",) for field in beginnings if field)
    assert cell.replace("'", "") == f'{before}{sign}HYPERLINK("x")'


@pytest.mark.parametrize("text", ["out of memory", "rate 1e-3 at round 5", "a=b", "[1, 2]", "x; y", ""])
def test_other_text_stays(text: str) -> None:
    assert spreadsheet_cell(text) == text


def test_cells_of_trials_csv() -> None:
    values = {"x": -0.5, "=1+1": ["=2+2"], "y": ("a", ";=3+3")}
    failed = replace(curve([0.5], state="FAILED"), error=f'=HYPERLINK("x"){HOSTILE}', hyperparameters=values)
    document = frontier_document("s", [failed], Chosen(), 3)
    (row,) = csv.DictReader(io.StringIO(trials_csv([failed], document, Chosen())))
    assert row["error"] == "'" + escaped(f'=HYPERLINK("x"){HOSTILE}')
    assert row["x"] == "-0.5"  # a number stays a number
    assert "=1+1" not in row
    assert row["'=1+1"] == "['=2+2']"
    assert row["y"] == "('a', ';'=3+3')"


def test_the_table_is_plain_text() -> None:
    document = frontier_document(HOSTILE, [curve([0.5, 0.4])], Chosen(), 3)
    assert table(document).replace("\n", "").isprintable()


def test_a_log_line_is_plain_text() -> None:
    line = VisibleFormatter("%(message)s").format(logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,)}))
    assert line.replace("\n", "").isprintable()


def test_commands_print_through_one_function(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE)
    assert capsys.readouterr().out.replace("\n", "").isprintable()
    files = [file for file in Path(terminal.__file__).parent.glob("*.py") if file.name != "terminal.py"]
    assert len(files) > 10
    assert not [file.name for file in files if re.search(r"typer\.(echo|secho|confirm)|\bprint\(", file.read_text())]
