"""What all tests share: properties judged by what holds, readable ids of cases, and `--fast`."""

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
NOT_FAST = TESTS / "not_fast.txt"
POSTGRESQL = r"[\[-]postgresql[\]-]"  # in the id of a test

settings.register_profile(
    "driftline",
    max_examples=30,
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


@pytest.hookimpl(trylast=True)  # other tests have been deselected by then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--fast` starts no PostgreSQL: what runs on every kind of store runs on SQLite alone."""
    if config.getoption("--fast"):
        left_out = [item for item in items if re.search(POSTGRESQL, item.name)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not re.search(POSTGRESQL, item.name)]
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Takes out of this process what tests would only wait for."""
    if database := sys.modules.get("service.store.database"):
        database._SYNCHRONOUS = "OFF"  # no test cuts the power
    if server := sys.modules.get("uvicorn.server"):
        server.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": lambda seconds: asyncio.sleep(seconds / 20)})
    if plan := sys.modules.get("trainers.engine.packs.plan"):
        plan._MEASURED_STEPS, plan._REPEATS = 2, 1  # whichever is chosen: all give the same numbers


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Folders with the longest time limit come first, and files within them, so that no process ends long after all.

    The files of a folder stay together: tests of other folders must not meet what its tests share, such as a Ray.
    """
    limits: dict[Path, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        for path in (item.path, item.path.parent):
            limits[path] = max(limits.get(path, 0.0), mark.args[0] if mark else 0.0)
    tests = Counter(item.path for item in items)

    def rank(item: pytest.Item) -> tuple[object, ...]:
        folder, file = item.path.parent, item.path
        return -limits[folder], folder, -limits[file], -tests[file], file

    return sorted(items, key=rank)


def pytest_make_parametrize_id(val: Any) -> str | None:
    """The id of a case that is a document or a list: its name and its settings. Others have pytest's ids."""
    if not isinstance(val, dict | list | tuple):
        return None
    return re.sub(r"[^\w.,=:+(){}-]", "_", in_words(val), flags=re.ASCII)[:100] or "empty"


def in_words(value: Any) -> str:
    """A document in one line.

    Examples:
        >>> in_words({"name": "fedavg", "client_lr": 0.1, "gradient_weights": [0, 1]})
        'fedavg,client_lr=0.1,gradient_weights=(0,1)'
        >>> in_words({"task": {"name": "digits"}})
        'task={digits}'
    """
    match value:
        case dict():
            name = [in_words(value["name"])] if "name" in value else []
            others = {key: item for key, item in value.items() if key != "name"}
            return ",".join(
                name
                + [
                    f"{key}={{{in_words(item)}}}" if isinstance(item, dict) else f"{key}={in_words(item)}"
                    for key, item in others.items()
                ]
            )
        case list() | tuple():
            return f"({','.join(map(in_words, value))})"
        case None | str() | float() | int() if not isinstance(value, int) or abs(value) < 10**18:
            return str(value)
    return type(value).__name__


@pytest.fixture(scope="session", autouse=True)
def _own_options() -> None:
    """What this run of pytest is told in the environment (`--last-failed` in .ci/run) does not reach what it starts."""
    os.environ.pop("PYTEST_ADDOPTS", None)
