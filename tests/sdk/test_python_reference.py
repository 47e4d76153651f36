"""docs/python.md, made anew and compared."""

import re
from pathlib import Path

import typer

import driftline
from docs import python_reference as reference
from service.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_page_of_python_is_up_to_date() -> None:
    command = "python -m docs.python_reference > docs/python.md"
    assert PAGE.read_text(encoding="utf-8") == reference.page(), f"run: {command}"


def test_the_page_describes_every_public_name_and_places_every_command() -> None:
    page = reference.page()
    described = set(re.findall(r"^### (?:driftline\.)?(\w+)$", page, re.MULTILINE))
    assert described >= {*driftline.__all__} - {"DriftlineError"}  # which has the chapter on errors
    rows = re.findall(r"^\| (`.*?) \|", page.partition("\n## ")[0], re.MULTILINE)
    commands = {word for row in rows[1:] for word in re.findall(r"`(\w+)", row)}
    assert commands == set(typer.main.get_group(app).commands)


def test_every_table_of_the_page_is_one() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", reference.page(), re.MULTILINE)
    assert len(tables) > 50
    for table in tables:  # an unescaped bar would shift a row
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} == {3}, table
