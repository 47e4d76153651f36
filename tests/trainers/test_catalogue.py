"""docs/methods.md, made anew and compared."""

import re
from pathlib import Path

from trainers import catalogue

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def test_the_page_of_methods_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == catalogue.page(), "run: python -m trainers.catalogue > docs/methods.md"


def test_no_cell_shifts_its_row() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", catalogue.page(), re.MULTILINE)
    assert len(tables) > 20
    for table in tables:  # a cell with an unescaped bar would shift its row
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
