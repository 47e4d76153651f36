"""The page that says what of the papers is built names every line of their checklists, and files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([A-D])(\d+) \| (.+?) \| (\w+) \| (.+?) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("paper", "count"), [("A", 32), ("B", 30), ("C", 23), ("D", 12)])
def test_every_line_of_the_checklist_is_there_once(paper: str, count: int) -> None:
    assert [int(number) for letter, number, *_ in ROWS if letter == paper] == list(range(1, count + 1))


def test_what_is_not_built_says_why_and_where() -> None:
    assert {state for *_, state, _ in ROWS} <= {"built", "partly", "later"}
    for letter, number, _, state, where in ROWS:
        if state != "built":
            assert len(where.split()) > 4, f"{letter}{number}"


@pytest.mark.parametrize(
    "place", sorted(set(re.findall(r"`((?:driftline|trainers|search_spaces|service|tests|examples)/[^`]+)`", PAGE)))
)
def test_every_file_is_there(place: str) -> None:
    assert (ROOT / place).exists()
