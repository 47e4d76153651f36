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


def test_files_with_the_longest_limit_come_first_and_keep_their_order() -> None:
    def item(name: str, seconds: float | None) -> Any:
        mark = None if seconds is None else SimpleNamespace(args=(seconds,))
        return SimpleNamespace(path=Path(name[0]), name=name, get_closest_marker=lambda _: mark)

    items = [item("a1", None), item("b1", 60), item("b2", 900), item("c2", 300.0), item("d2", None), item("d1", None)]
    assert [one.name for one in longest_first(items)] == ["b1", "b2", "c2", "d2", "d1", "a1"]
