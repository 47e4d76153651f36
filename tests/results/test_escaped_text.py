"""Text from workers and drivers cannot control a reader's terminal or spreadsheet."""

import csv
import io
from dataclasses import replace

import pytest

from driftline.results.document import frontier_document
from driftline.results.show.escaped_text import escaped, spreadsheet_cell
from driftline.results.show.trials_csv import trials_csv

from .samples import Chosen, curve

HOSTILE = "lost\x1b]0;title\x07\r\nall is \u202ewell\u2028\x9b2J"


def test_nothing_is_left_that_moves_a_cursor_or_turns_text_around() -> None:
    shown = escaped(HOSTILE)
    assert shown == r"lost\x1b]0;title\x07\r\nall is \u202ewell\u2028\x9b2J"
    assert escaped(shown) == shown
    assert escaped("Fédération 学習 — ok") == "Fédération 学習 — ok"


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", " =1+1"])
def test_a_formula_is_text(formula: str) -> None:
    assert spreadsheet_cell(formula) == f"'{formula}"


def test_cells_of_trials_csv() -> None:
    failed = replace(curve([0.5], state="FAILED"), error=f'=HYPERLINK("x"){HOSTILE}', hyperparameters={"x": -0.5})
    document = frontier_document("s", [failed], Chosen(), 3)
    (row,) = csv.DictReader(io.StringIO(trials_csv([failed], document, Chosen())))
    assert row["error"] == "'" + escaped(f'=HYPERLINK("x"){HOSTILE}')
    assert row["x"] == "-0.5"  # a number stays a number
