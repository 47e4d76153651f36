"""A full disk and a damaged SQLite file: one line that names the file and says what to do, and nothing is lost."""

import logging
import os
import queue
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from driftline.errors import Conflict, DriftlineError, Unavailable
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.folder import Folder
from service.embedded.folder_results import stored_curves, stored_frontier, stored_table, stored_trials
from service.embedded.moved_folder import adopt_artifacts
from service.log_file import LogFile
from service.scheduler.loop import Scheduler
from service.store.store import Store
from tests.waiting import until

from .conftest import SPEC, new_trials
from .scheduler_setup import FakeLauncher
from .store_setup import complete, packed, reach, report

READERS: dict[str, Callable[[Path], object]] = {
    "open": lambda folder: Folder(folder, create=False).close(),
    "frontier": stored_frontier,
    "trials": stored_trials,
    "curves": stored_curves,
    "table": stored_table,
}


def full(store: Store) -> None:
    """Lets the database grow no more, as on a full disk."""
    with store.session.read() as connection:
        pages = connection.execute(sa.text("PRAGMA page_count")).scalar_one()
    sa.event.listen(
        store.session.database._engine,
        "begin",
        lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}"),
        insert=True,
    )


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "driftline.db")
    study, attempt, (trial, _) = packed(store, running=1)
    store.curves.report(study, report(attempt, trial, range(3)))
    full(store)
    with suppress(Unavailable):
        for _ in range(1000):
            store.studies.create(SPEC, "f" * 64)
    with pytest.raises(Unavailable, match=r"must have room for .*/driftline.db, got a full one: free some space"):
        store.studies.create(SPEC, "f" * 64)
    assert store.session.database.writes_fail
    assert store.curves.columns(study)[trial]["round"] == [0, 1, 2]


def test_log_lines_without_room_are_dropped_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFile(tmp_path / "driver.log")
    handler.stream = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    for number in range(100):
        handler.emit(logging.makeLogRecord({"msg": f"line {number}"}))
    handler.close()
    missing = LogFile(tmp_path / "no" / "driver.log")
    missing.emit(logging.makeLogRecord({"msg": "a line"}))
    assert capsys.readouterr() == ("", "")


def test_a_failure_that_lasts_is_logged_once(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Scheduler(sqlite_store, FakeLauncher(), lambda study, project: "", every_s=0.001)
    errors: deque[Exception] = deque([Unavailable("full")] * 50 + [RuntimeError("odd")] * 50)
    step = loop.step

    def failing() -> Any:
        if errors:
            raise errors.popleft()
        return step()

    monkeypatch.setattr(loop, "step", failing)
    with caplog.at_level(logging.INFO, "service.scheduler.loop"):
        loop.start()
        until(lambda: "looks at the studies again" in caplog.text)
        loop.close()
    assert [record.levelname for record in caplog.records if "scheduler" in record.message] == [
        "WARNING",
        "ERROR",
        "INFO",
    ]


def test_a_run_says_once_that_nothing_can_be_written_and_once_that_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    database, now = SimpleNamespace(writes_fail=True), [0.0]
    store = SimpleNamespace(session=SimpleNamespace(database=database))
    run: Any = SimpleNamespace(
        folder=Path("out"), _folder=SimpleNamespace(store=store), _failed_at=None, _messages=queue.SimpleQueue()
    )
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    lines = []
    for second, fails in enumerate([True, False, True, True, *[False] * 20]):
        database.writes_fail, now[0] = fails, float(second)
        lines += list(EmbeddedRun.said(run))
    assert [line[:50] for line in lines] == [
        "nothing can be written in out: free some space on ",
        "out can be written again: the study goes on",
    ]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with a study, trials and curves."""
    file = tmp_path_factory.mktemp("whole") / "driftline.db"
    store = Store(file)
    study, attempt, trials = packed(store, 6)
    for trial in trials:
        store.curves.report(study, report(attempt, trial, range(200)))
    reach(store, study, 200)
    store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    store.trials.create(study, attempt, new_trials("fedavg", 40))
    store.close()
    return file.read_bytes()


def damaged(content: bytes, seed: int) -> bytes:
    """The content with other bytes in some places, cut off, or replaced by random ones."""
    draw = random.Random(seed)
    if seed % 8 == 0:
        return draw.randbytes(len(content))
    if seed % 8 == 1:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(draw.choice((1, 3, 30))):
        at, length = draw.randrange(100, len(content) - 4096), draw.choice((1, 4, 64, 4096))
        changed[at : at + length] = draw.randbytes(length)
    return bytes(changed)


def test_a_damaged_database_gives_one_line(tmp_path: Path, content: bytes) -> None:
    errors: list[DriftlineError] = []
    for seed in range(24):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "driftline.db").write_bytes(damaged(content, seed))
        for read in READERS.values():
            try:
                read(folder)
            except DriftlineError as error:  # no other one
                errors.append(error)
    assert len(errors) > 36
    conflicts = [error for error in errors if isinstance(error, Conflict)]
    assert len(conflicts) > 0.95 * len(errors)
    for error in conflicts:
        assert "\n" not in error.message
        assert "damaged" in error.message or "works in it" in error.message


def test_a_damaged_database_of_mlflow_gives_one_line(tmp_path: Path) -> None:
    for content in (random.Random(0).randbytes(10_000), b"", b"SQLite format 3\0" + b"x" * 5000):
        (tmp_path / "mlflow.db").write_bytes(content)
        with pytest.raises(Conflict, match=r"mlflow.db is not a database of MLflow, or it is damaged .*: delete it"):
            adopt_artifacts(tmp_path)
