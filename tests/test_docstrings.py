"""The examples in docstrings give what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("driftline", "search_spaces", "service", "trainers")
    for file in sorted((ROOT / package).rglob("*.py"))
    if EXAMPLE.search(file.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    failures, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failures
