"""Classes and files have names of their own, so that a name leads to one place."""

import ast
from collections import Counter, defaultdict

from tests.conftest import TESTS

PACKAGES = ("driftline", "service", "trainers", "search_spaces")
FIXED = {"Config", "Hyper", "Sampler", "Settings"}
"""Names that the Protocols of plug-ins and launchers ask for."""

FILES = {"__init__.py", "__main__.py", "launcher.py", "quadratic.py"}
"""Names that Python and entry points ask for, and a task and a model that are found by their names."""


def test_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file in sorted((TESTS.parent / package).rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(file.relative_to(TESTS.parent)))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: files for name, files in several.items() if name not in FIXED} == {}
    assert several.keys() == FIXED
    assert len(places) > 300


def test_files_of_a_package_have_names_of_their_own() -> None:
    shared = set()
    for package in PACKAGES:
        files = [file for file in (TESTS.parent / package).rglob("*.py") if file.parent.name != "versions"]
        assert len(files) > 20
        shared |= {name for name, times in Counter(file.name for file in files).items() if times > 1}
    assert shared == FILES
