"""docs/methods.md, made anew and compared."""

from __future__ import annotations

import re
from pathlib import Path

from trainers import catalogue
from trainers.registry import methods, optimizers, schedules
from trainers.trial.parts import offered

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def test_the_page_of_methods_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == catalogue.page(), "run: python -m trainers.catalogue > docs/methods.md"


def test_the_page_names_everything_that_can_be_set() -> None:
    page = catalogue.page()
    for registry in (methods(), optimizers(), schedules()):
        for name in registry:
            assert f"| [{name}](#{name}) | " in page
            part = page.partition(f"\n### {name}\n")[2].partition("\n##")[0]
            for item in offered(registry[name]):
                assert f"| `{item.name}`" in part
    for name in methods():
        assert catalogue.source(methods()[name]).startswith(('"', 'after "'))
        assert catalogue.exchanges(methods()[name])[:4] in ("one ", "two ")
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) > 20
    for table in tables:  # a cell with an unescaped bar would shift its row
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
