"""`make test-fast` leaves out what tests/not_fast.txt names, and nothing that starts a process is missing there."""

import re
from pathlib import Path

from tests.conftest import TESTS, not_fast

STARTS = re.compile(
    r"^ *(?:import|from) (?:subprocess|multiprocessing|ray)\b"  # another process
    r"|^from \.api_setup import .*\brunning\b|\bservice: Service\b",  # a service
    re.MULTILINE,
)


def listed(file: Path) -> bool:
    return any(path in not_fast() for path in (file, *file.parents))


def test_the_list_names_files_and_folders_that_exist_once() -> None:
    assert [path for path in not_fast() if not path.exists()] == []
    assert not_fast() == sorted(set(not_fast()))
    assert [path for path in not_fast() if listed(path.parent)] == []


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
