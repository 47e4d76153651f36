"""The scheduler removes files of deleted studies, and checkpoints that no study continues from."""

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Unavailable
from driftline.wire.access import Quota
from driftline.wire.driver_messages import Released
from service.driver import checkpoints
from service.launchers.base import Seen
from service.launchers.local.launcher import LocalLauncher
from service.scheduler import cleanup
from service.scheduler.cleanup import FAILED_KEPT_S, SWEEP_S, Cleanup
from service.store.database import Database
from service.store.store import Store
from tests.waiting import until

from .conftest import Clock
from .scheduler_setup import FakeLauncher, make
from .store_setup import bring

DAY = 24 * 3600.0


EVERYWHERE = pytest.mark.parametrize("folder", ["path", "memory"], indirect=True)
"""For tests of how files are removed; tests of which files are removed use a path."""


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = getattr(request, "param", "path")
    return {"path": str(tmp_path / "checkpoints"), "memory": f"memory://{uuid.uuid4().hex}"}[kind]


@pytest.fixture
def store(sqlite_store: Store, clocked: None) -> Store:
    return sqlite_store


class StudyFiles:
    """A store and a folder of checkpoints, and the worker that removes files there between looks of the scheduler."""

    def __init__(self, store: Store, clock: Clock, folder: str) -> None:
        self.store, self.clock, self.folder, self.launcher = store, clock, folder, FakeLauncher()
        self.worker = self.cleanup()

    def cleanup(self, quota: Quota | None = None, steady: Clock | None = None) -> Cleanup:
        return Cleanup(self.store, self.launcher, self.folder, quota or Quota(), steady or self.clock)

    def ended(self, state: Released) -> str:
        """A study whose first driver ended and left a checkpoint and a draft."""
        study = make(self.store, self.clock)
        self.store.leases.acquire(study, "elsewhere/1")
        bring(self.store, study, state)
        self.write(study)
        return study

    def write(self, study: str) -> None:
        checkpoints.write(checkpoints.join(self.folder, study, "pack.1"), (1, 1), 5, b"5")

    def left(self) -> set[str]:
        """Studies that have a checkpoint."""
        names = checkpoints.folders(self.folder)
        return {name for name in names if list(checkpoints.names(checkpoints.join(self.folder, name, "pack.1"), 99))}

    def turns(self, count: int = 1) -> None:
        """Run looks of the scheduler, one sweep interval apart, and wait for the removals that each starts."""
        for _ in range(count):
            self.clock.now += SWEEP_S
            self.worker.step()
            until(lambda: self.worker._removal is None or self.worker._removal.done())
            self.worker.step()


@pytest.fixture
def files(store: Store, clock: Clock, folder: str) -> StudyFiles:
    return StudyFiles(store, clock, folder)


@EVERYWHERE
def test_checkpoints_that_nobody_goes_on_from(files: StudyFiles) -> None:
    """A study that was cancelled while paused has no driver that could remove its checkpoints."""
    paused, cancelled = files.ended("PAUSED"), files.ended("PAUSED")
    failed = files.ended("FAILED")
    released = files.ended("CANCELLED")
    files.store.studies.intend(cancelled, "cancel")
    running = make(files.store, files.clock)
    files.store.leases.acquire(running, "elsewhere/1")
    files.write(running)
    foreign = "of-another-service"
    files.write(foreign)
    files.turns()
    assert files.left() == {paused, failed, running, foreign}
    assert released not in checkpoints.folders(files.folder)
    files.clock.now += FAILED_KEPT_S - 10 * SWEEP_S
    files.turns()
    assert failed in files.left()
    files.clock.now += 10 * SWEEP_S
    files.turns()
    assert files.left() == {paused, running, foreign}


@EVERYWHERE
def test_a_study_that_goes_on_meanwhile_keeps_what_its_new_driver_writes(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = files.ended("FAILED")
    files.clock.now += FAILED_KEPT_S + 1
    asked = files.store.studies.ended

    def then_resumed(*arguments: Any) -> dict[str, int]:
        found = asked(*arguments)
        if files.store.studies.get(study).state == "FAILED":
            files.store.studies.intend(study, "resume")
            attempt = files.store.leases.acquire(study, "elsewhere/2").attempt
            checkpoints.write(checkpoints.join(files.folder, study, "pack.1"), (attempt, 1), 7, b"7")
        return found

    monkeypatch.setattr(files.store.studies, "ended", then_resumed)
    files.turns()
    assert files.store.studies.get(study).state == "RUNNING"
    (newest,) = checkpoints.names(checkpoints.join(files.folder, study, "pack.1"), 99)
    assert checkpoints.read(newest) == b"7"


def test_many_studies_take_their_turns(files: StudyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "FOLDERS", 2)
    paused = [files.ended("PAUSED") for _ in range(4)]
    cancelled = [files.ended("CANCELLED") for _ in range(3)]
    files.turns(2)
    assert files.left() == {*paused, *cancelled}  # the first four are paused
    files.turns(2)
    assert files.left() == set(paused)


@EVERYWHERE
def test_checkpoints_go_with_their_study_although_the_storage_was_away(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study, kept = files.ended("PAUSED"), files.ended("PAUSED")
    files.store.deletions.request(study)
    with monkeypatch.context() as broken:
        broken.setattr(checkpoints, "clear", lambda *_: (_ for _ in ()).throw(ImportError("Install s3fs")))
        files.turns()
    assert "Install s3fs" in caplog.text
    files.worker.step()  # not at once
    assert files.worker._removal is None
    assert (files.launcher.forgotten, files.left()) == ([], {study, kept})
    files.turns()
    assert (files.launcher.forgotten, files.left()) == ([study], {kept})
    assert files.store.deletions.pending("files", 9) == []
    files.turns()
    assert files.launcher.forgotten == [study]


def test_studies_whose_drivers_live_or_cannot_be_seen_block_no_later_deletion(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleanup, "STUDIES", 2)
    deleted = [files.ended("PAUSED") for _ in range(6)]
    for study in deleted:
        files.store.deletions.request(study)
    launcher, tried = files.launcher, []
    seen, clear = launcher.seen, checkpoints.clear
    launcher.says = dict.fromkeys(deleted[:3], Seen(True))

    def refuse(path: str, attempt: int) -> None:
        tried.append(path.rpartition("/")[2])
        if launcher.says and tried[-1] == deleted[3]:
            raise PermissionError(path)
        clear(path, attempt)

    def closed(study_id: str) -> Seen:
        if launcher.says and study_id == deleted[4]:
            raise Unavailable("its namespace is closed")
        return seen(study_id)

    monkeypatch.setattr(checkpoints, "clear", refuse)
    monkeypatch.setattr(launcher, "seen", closed)
    until(lambda: files.worker.step() or files.left() == set(deleted[:5]))
    assert sorted(tried) == [deleted[3], deleted[5]]  # nothing twice
    assert set(launcher.stopped) == set(deleted[:3])
    assert "its namespace is closed" in caplog.text
    launcher.says.clear()
    until(lambda: files.turns() or not files.store.deletions.pending("files", 9))
    assert files.left() == set()


def test_a_launcher_that_is_away_or_cannot_remove_logs_is_asked_again(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study = files.ended("PAUSED")
    files.store.deletions.request(study)
    files.launcher.away = True
    files.turns()
    assert "the cluster is away" in caplog.text
    files.launcher.away = False
    with monkeypatch.context() as patched:
        patched.setattr(files.launcher, "forget", lambda study_id: Path("/dev/null/log").unlink())
        files.turns()
    assert "Not a directory" in caplog.text
    assert files.store.deletions.pending("files", 9)
    files.turns()
    assert (files.launcher.forgotten, files.left(), files.store.deletions.pending("files", 9)) == ([study], set(), [])


@pytest.mark.parametrize("answer", [Seen(True), OSError("no route")], ids=["alive", "error"])
def test_a_driver_of_a_deleted_study_is_asked_about_once_a_minute(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch, answer: Seen | Exception
) -> None:
    study, asked = files.ended("PAUSED"), []
    files.store.deletions.request(study)

    def seen(study_id: str) -> Seen:
        asked.append(files.clock.now - begin)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(files.launcher, "seen", seen)
    begin = files.clock.now
    for moment in (0, 0, 0, SWEEP_S - 1, SWEEP_S):
        files.clock.now = begin + moment
        files.worker.step()
        until(lambda: files.worker._removal is None or files.worker._removal.done())
    assert asked == [0, SWEEP_S]


def test_a_storage_that_hangs_holds_up_nothing_else(files: StudyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    clear = checkpoints.clear

    def hang(*arguments: Any) -> None:
        answers.wait(60)
        clear(*arguments)

    monkeypatch.setattr(checkpoints, "clear", hang)
    study, second = files.ended("PAUSED"), files.ended("PAUSED")
    files.store.deletions.request(study)
    files.worker.step()
    files.store.deletions.request(second)
    for _ in range(3):
        files.worker.step()
    assert files.store.studies.find() == []
    assert not files.store.deletions.purge()  # all rows are gone
    assert files.launcher.forgotten == []
    answers.set()
    files.turns(2)
    assert files.launcher.forgotten == [study, second]


def test_studies_that_a_project_keeps_no_longer_go_a_few_at_a_time(
    files: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "EXPIRED", 2)
    old = [files.ended("FAILED") for _ in range(3)]
    paused = files.ended("PAUSED")
    files.clock.now += DAY
    new = files.ended("FAILED")
    files.worker = files.cleanup(Quota(retention_days=1))
    files.turns()
    assert [study.id for study in files.store.studies.find()] == [new, paused, old[2]]
    files.turns(2)
    assert [study.id for study in files.store.studies.find()] == [new, paused]
    assert files.left() == {new, paused}


def test_a_clock_that_is_set_forward_lets_no_study_expire_for_an_hour(files: StudyFiles) -> None:
    study = files.ended("FAILED")
    steady = Clock()
    files.worker = files.cleanup(Quota(retention_days=1), steady)

    def passes(seconds: float) -> None:
        steady.now += seconds
        files.clock.now += seconds
        files.worker.step()

    files.worker.step()
    files.clock.now += 365 * DAY
    passes(1)
    for _ in range(59):
        passes(60)
    assert [kept.id for kept in files.store.studies.find()] == [study]
    files.clock.now -= 365 * DAY  # put right
    passes(90)
    assert [kept.id for kept in files.store.studies.find()] == [study]
    files.clock.now += 30  # as clocks are
    passes(DAY)
    assert files.store.studies.find() == []


def test_checkpoints_of_a_failed_study_outlast_a_clock_that_is_set_forward(files: StudyFiles) -> None:
    failed, cancelled = files.ended("FAILED"), files.ended("PAUSED")
    files.store.studies.intend(cancelled, "cancel")
    steady = Clock()
    files.worker = files.cleanup(steady=steady)

    def passes(seconds: float) -> None:
        steady.now += seconds
        files.turns()

    files.clock.now += FAILED_KEPT_S
    passes(SWEEP_S)
    assert files.left() == {failed}  # no files.clock says whether a study was cancelled
    for _ in range(58):
        passes(SWEEP_S)
    assert files.left() == {failed}
    passes(2 * SWEEP_S)
    assert files.left() == set()


def test_a_launcher_removes_logs_and_locks(tmp_path: Path) -> None:
    launcher = LocalLauncher("http://127.0.0.1:1", str(tmp_path), tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    for name in ("one.log", "one.lock", "two.log"):
        (tmp_path / "logs" / name).touch()
    for _ in range(2):
        launcher.forget("one")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["two.log"]


class Died(BaseException):
    """The process ends here."""


class Sites:
    """What lasts: the process dies before one of these, which is as dying after the one before.

    Args:
        fatal: How many it passes before.
    """

    def __init__(self, fatal: int) -> None:
        self.left = fatal

    def at(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Died

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (self.at(), call(*given))[1]

    def commits(self, write: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def announced(database: Database) -> Iterator[Any]:
            with write(database) as connection:
                yield connection
                self.at()

        return announced


def test_schedulers_that_die_anywhere_leave_nothing_of_deleted_and_expired_studies(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dies at the first commit or removal of files or logs, another at the second, until one passes them all."""
    files = StudyFiles(store, clock, str(tmp_path))
    kept = files.ended("PAUSED")
    for number in itertools.count():
        deleted, _ = (files.ended(state) for state in ("PAUSED", "FAILED"))
        store.deletions.request(deleted)
        clock.now += DAY
        sites, files.worker = Sites(number), files.cleanup(Quota(retention_days=1))
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            patched.setattr(Database, "write", sites.commits(Database.write))
            patched.setattr(checkpoints, "clear", sites.before(checkpoints.clear))
            patched.setattr(files.launcher, "forget", sites.before(files.launcher.forget))
            files.turns(3)
        files.worker = files.cleanup(Quota(retention_days=1))
        files.turns(3)
        assert files.left() == {kept}, number
        assert [study.id for study in store.studies.find()] == [kept], number
        assert store.deletions.pending("files", 9) == [], number
        if sites.left >= 0:
            break
    assert number > 6
