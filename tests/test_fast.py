"""`make test-fast` leaves out what tests/not_fast.txt names, and nothing that starts a process is missing there.

Files with long time limits begin first.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import TESTS, longest_first, not_fast, pytest_ignore_collect

STARTS = re.compile(
    r"^ *(?:import|from) (?:subprocess|multiprocessing|ray)\b"  # another process
    r"|^from \.api_setup import .*\brunning\b|\bservice: Service\b",  # a service
    re.MULTILINE,
)


def asked(*options: str) -> Any:
    return SimpleNamespace(getoption=lambda name: name in options)


def listed(file: Path) -> bool:
    return any(path in not_fast() for path in (file, *file.parents))


def test_the_list_names_files_and_folders_that_exist_once() -> None:
    assert [path for path in not_fast() if not path.exists()] == []
    assert not_fast() == sorted(set(not_fast()))
    assert [path for path in not_fast() if listed(path.parent)] == []


def test_fast_leaves_out_the_list_and_nothing_else() -> None:
    for path in not_fast():
        assert pytest_ignore_collect(path, asked("--fast"))
        assert pytest_ignore_collect(path, asked()) is None
    assert pytest_ignore_collect(TESTS / "wire" / "test_ids.py", asked("--fast")) is None


def test_what_starts_a_process_or_a_service_is_on_the_list() -> None:
    missing = {
        str(file.relative_to(TESTS)): found[0].strip()
        for file in sorted(TESTS.rglob("test_*.py"))
        if not listed(file) and (found := STARTS.search(file.read_text(encoding="utf-8")))
    }
    assert missing == {}


def test_slow_tests_are_in_files_that_make_test_slow_collects() -> None:
    files = [file for file in TESTS.rglob("*.py") if re.search(r"mark\.slow", file.read_text(encoding="utf-8"))]
    assert len(files) > 20
    assert [file for file in files if not file.name.startswith("test_")] == []


def test_folders_and_files_with_the_longest_limit_come_first_and_folders_stay_together() -> None:
    def item(name: str, seconds: float | None) -> Any:
        mark = None if seconds is None else SimpleNamespace(args=(seconds,))
        return SimpleNamespace(path=Path(name[:3]), name=name, get_closest_marker=lambda _: mark)

    items = [
        item("a/a1", None), item("a/b1", 60), item("a/b2", 900), item("b/c2", 300.0), item("b/d2", None),
        item("b/d1", None), item("c/e1", 901), item("a/f1", None), item("a/f2", None),
    ]  # fmt: skip
    expected = ["c/e1", "a/b1", "a/b2", "a/f1", "a/f2", "a/a1", "b/c2", "b/d2", "b/d1"]
    assert [one.name for one in longest_first(items)] == expected
