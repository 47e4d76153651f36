"""What all tests share: properties judged by what holds, and `--fast`."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
NOT_FAST = TESTS / "not_fast.txt"
POSTGRESQL = r"[\[-]postgresql[\]-]"  # in the id of a test

settings.register_profile(
    "driftline",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("driftline")

# Ray gives its workers a niceness of 15: beside whatever else a busy machine does, they would starve for minutes.
os.environ.setdefault("RAY_worker_niceness", "0")


def not_fast() -> list[Path]:
    """The files and folders that `--fast` leaves out."""
    lines = NOT_FAST.read_text(encoding="utf-8").splitlines()
    return [TESTS / line for line in lines if line and not line.startswith("#")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help=f"leave out the files named in tests/{NOT_FAST.name}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True leaves a path out; None lets pytest decide."""
    return True if config.getoption("--fast") and collection_path in not_fast() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--fast` starts no PostgreSQL: what runs on every kind of store runs on SQLite alone."""
    if config.getoption("--fast"):
        left_out = [item for item in items if re.search(POSTGRESQL, item.name)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not re.search(POSTGRESQL, item.name)]
