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

DAY = 24 * 3600.0


@pytest.fixture(params=["path", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"path": str(tmp_path / "checkpoints"), "memory": f"memory://{uuid.uuid4().hex}"}[request.param]


@pytest.fixture
def store(sqlite_store: Store, clock: Clock) -> Store:
    sqlite_store.session.clock = clock
    return sqlite_store


def ended(store: Store, clock: Clock, folder: str, state: Released) -> str:
    """A study whose first driver ended and left a checkpoint and a draft."""
    study = make(store, clock)
    store.leases.acquire(study, "elsewhere/1")
    if state in ("PAUSED", "CANCELLED"):
        store.studies.intend(study, "pause" if state == "PAUSED" else "cancel")
    store.leases.release(study, 1, state)
    checkpoints.write(checkpoints.join(folder, study, "pack.1"), (1, 1), 5, b"5")
    return study


def left(folder: str) -> set[str]:
    """Studies that have a checkpoint."""
    names = checkpoints.folders(folder)
    return {name for name in names if list(checkpoints.names(checkpoints.join(folder, name, "pack.1"), 99))}


def cleaner(store: Store, launcher: Any, folder: str) -> Cleanup:
    return Cleanup(store, launcher, folder, Quota(), store.session.clock)


def turns(worker: Cleanup, clock: Clock, count: int = 1) -> None:
    """Run looks of the scheduler, one sweep interval apart, and wait for the removals that each starts."""
    for _ in range(count):
        clock.now += SWEEP_S
        worker.step()
        until(lambda: worker._removal is None or worker._removal.done())
        worker.step()


def test_checkpoints_go_with_their_study(store: Store, clock: Clock, folder: str) -> None:
    deleted, kept = ended(store, clock, folder, "PAUSED"), ended(store, clock, folder, "PAUSED")
    launcher = FakeLauncher()
    worker = cleaner(store, launcher, folder)
    turns(worker, clock)
    assert left(folder) == {deleted, kept}
    store.deletions.request(deleted)
    turns(worker, clock)
    assert left(folder) == {kept}
    assert launcher.forgotten == [deleted]
    assert store.deletions.pending("files", 9) == []
    turns(worker, clock)
    assert launcher.forgotten == [deleted]


def test_a_driver_that_is_still_there_ends_first(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = ended(store, clock, folder, "PAUSED")
    launcher = FakeLauncher(running={study: ("", 1)})
    monkeypatch.setattr(launcher, "stop", launcher.stopped.append)
    worker = cleaner(store, launcher, folder)
    store.deletions.request(study)
    turns(worker, clock)
    assert (set(launcher.stopped), launcher.forgotten, left(folder)) == ({study}, [], {study})
    launcher.running.clear()
    turns(worker, clock)
    assert (launcher.forgotten, left(folder)) == ([study], set())


def test_checkpoints_that_nobody_goes_on_from(store: Store, clock: Clock, folder: str) -> None:
    """A study that was cancelled while paused has no driver that could remove its checkpoints."""
    paused, cancelled = ended(store, clock, folder, "PAUSED"), ended(store, clock, folder, "PAUSED")
    failed = ended(store, clock, folder, "FAILED")
    released = ended(store, clock, folder, "CANCELLED")
    store.studies.intend(cancelled, "cancel")
    running = make(store, clock)
    store.leases.acquire(running, "elsewhere/1")
    checkpoints.write(checkpoints.join(folder, running, "pack.1"), (1, 1), 5, b"5")
    foreign = "of-another-service"
    checkpoints.write(checkpoints.join(folder, foreign, "pack.1"), (1, 1), 5, b"5")
    worker = cleaner(store, FakeLauncher(), folder)
    turns(worker, clock)
    assert left(folder) == {paused, failed, running, foreign}
    assert released not in checkpoints.folders(folder)
    clock.now += FAILED_KEPT_S - 10 * SWEEP_S
    turns(worker, clock)
    assert failed in left(folder)
    clock.now += 10 * SWEEP_S
    turns(worker, clock)
    assert left(folder) == {paused, running, foreign}


def test_a_study_that_goes_on_meanwhile_keeps_what_its_new_driver_writes(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = ended(store, clock, folder, "FAILED")
    clock.now += FAILED_KEPT_S + 1
    asked = store.studies.ended

    def then_resumed(*arguments: Any) -> dict[str, int]:
        found = asked(*arguments)
        if store.studies.get(study).state == "FAILED":
            store.studies.intend(study, "resume")
            attempt = store.leases.acquire(study, "elsewhere/2").attempt
            checkpoints.write(checkpoints.join(folder, study, "pack.1"), (attempt, 1), 7, b"7")
        return found

    monkeypatch.setattr(store.studies, "ended", then_resumed)
    turns(cleaner(store, FakeLauncher(), folder), clock)
    assert store.studies.get(study).state == "RUNNING"
    (newest,) = checkpoints.names(checkpoints.join(folder, study, "pack.1"), 99)
    assert checkpoints.read(newest) == b"7"


def test_many_studies_take_their_turns(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "FOLDERS", 2)
    paused = [ended(store, clock, folder, "PAUSED") for _ in range(4)]
    cancelled = [ended(store, clock, folder, "CANCELLED") for _ in range(3)]
    worker = cleaner(store, FakeLauncher(), folder)
    turns(worker, clock, 2)
    assert left(folder) == {*paused, *cancelled}  # the first four are paused
    turns(worker, clock, 2)
    assert left(folder) == set(paused)


def test_a_storage_that_is_away_is_tried_again(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study = ended(store, clock, folder, "PAUSED")
    store.deletions.request(study)
    worker = cleaner(store, launcher := FakeLauncher(), folder)
    with monkeypatch.context() as broken:
        broken.setattr(checkpoints, "clear", lambda *_: (_ for _ in ()).throw(ImportError("Install s3fs")))
        turns(worker, clock)
    assert "Install s3fs" in caplog.text
    worker.step()  # not at once
    assert worker._removal is None
    assert (launcher.forgotten, left(folder)) == ([], {study})
    turns(worker, clock)
    assert (launcher.forgotten, left(folder)) == ([study], set())


def test_studies_whose_files_cannot_be_removed_block_no_later_deletion(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "STUDIES", 2)
    deleted = [ended(store, clock, folder, "PAUSED") for _ in range(5)]
    for study in deleted:
        clock.now += 1
        store.deletions.request(study)
    locked, tried = set(deleted[:3]), []
    clear = checkpoints.clear

    def refuse(path: str, attempt: int) -> None:
        tried.append(path.rpartition("/")[2])
        if tried[-1] in locked:
            raise PermissionError(path)
        clear(path, attempt)

    monkeypatch.setattr(checkpoints, "clear", refuse)
    worker = cleaner(store, FakeLauncher(), folder)

    def rests() -> bool:
        worker.step()
        return worker._removal is None

    until(rests)  # the clock stands: nothing is tried twice
    assert (left(folder), sorted(tried)) == (locked, deleted)
    locked.clear()
    clock.now += SWEEP_S
    until(rests)
    assert (left(folder), store.deletions.pending("files", 9)) == (set(), [])


def test_studies_whose_drivers_live_or_cannot_be_seen_block_no_later_deletion(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleanup, "STUDIES", 2)
    deleted = [ended(store, clock, folder, "PAUSED") for _ in range(6)]
    for study in deleted:
        store.deletions.request(study)
    launcher, tried = FakeLauncher(), []
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
    worker = cleaner(store, launcher, folder)
    until(lambda: worker.step() or left(folder) == set(deleted[:5]))
    assert sorted(tried) == [deleted[3], deleted[5]]  # nothing twice
    assert "its namespace is closed" in caplog.text
    launcher.says.clear()
    until(lambda: turns(worker, clock) or not store.deletions.pending("files", 9))
    assert left(folder) == set()


def test_a_launcher_that_is_away_or_cannot_remove_logs_is_asked_again(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study = ended(store, clock, folder, "PAUSED")
    store.deletions.request(study)
    launcher = FakeLauncher()
    worker = cleaner(store, launcher, folder)
    launcher.away = True
    turns(worker, clock)
    assert "the cluster is away" in caplog.text
    launcher.away = False
    with monkeypatch.context() as patched:
        patched.setattr(launcher, "forget", lambda study_id: Path("/dev/null/log").unlink())
        turns(worker, clock)
    assert "Not a directory" in caplog.text
    assert store.deletions.pending("files", 9)
    turns(worker, clock)
    assert (launcher.forgotten, left(folder), store.deletions.pending("files", 9)) == ([study], set(), [])


def test_a_storage_that_hangs_holds_up_nothing_else(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    clear = checkpoints.clear

    def hang(*arguments: Any) -> None:
        answers.wait(60)
        clear(*arguments)

    monkeypatch.setattr(checkpoints, "clear", hang)
    study, second = ended(store, clock, folder, "PAUSED"), ended(store, clock, folder, "PAUSED")
    worker = cleaner(store, launcher := FakeLauncher(), folder)
    store.deletions.request(study)
    worker.step()
    store.deletions.request(second)
    for _ in range(3):
        worker.step()
    assert store.studies.find() == []
    assert not store.deletions.purge()  # all rows are gone
    assert launcher.forgotten == []
    answers.set()
    turns(worker, clock, 2)
    assert launcher.forgotten == [study, second]


def test_studies_that_a_project_keeps_no_longer_go_a_few_at_a_time(
    store: Store, clock: Clock, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "EXPIRED", 2)
    old = [ended(store, clock, folder, "FAILED") for _ in range(3)]
    paused = ended(store, clock, folder, "PAUSED")
    clock.now += DAY
    new = ended(store, clock, folder, "FAILED")
    worker = Cleanup(store, FakeLauncher(), folder, Quota(retention_days=1), store.session.clock)
    turns(worker, clock)
    assert [study.id for study in store.studies.find()] == [new, paused, old[2]]
    turns(worker, clock, 2)
    assert [study.id for study in store.studies.find()] == [new, paused]
    assert left(folder) == {new, paused}


def test_a_clock_that_is_set_forward_lets_no_study_expire_for_an_hour(store: Store, clock: Clock, folder: str) -> None:
    study = ended(store, clock, folder, "FAILED")
    steady = Clock()
    worker = Cleanup(store, FakeLauncher(), None, Quota(retention_days=1), steady)

    def passes(seconds: float) -> None:
        steady.now += seconds
        clock.now += seconds
        worker.step()

    worker.step()
    clock.now += 365 * DAY
    passes(1)
    for _ in range(59):
        passes(60)
    assert [kept.id for kept in store.studies.find()] == [study]
    clock.now -= 365 * DAY  # put right
    passes(90)
    assert [kept.id for kept in store.studies.find()] == [study]
    clock.now += 30  # as clocks are
    passes(DAY)
    assert store.studies.find() == []


def test_checkpoints_of_a_failed_study_outlast_a_clock_that_is_set_forward(
    store: Store, clock: Clock, folder: str
) -> None:
    failed, cancelled = ended(store, clock, folder, "FAILED"), ended(store, clock, folder, "PAUSED")
    store.studies.intend(cancelled, "cancel")
    steady = Clock()
    worker = Cleanup(store, FakeLauncher(), folder, Quota(), steady)

    def passes(seconds: float) -> None:
        steady.now += seconds
        turns(worker, clock)

    clock.now += FAILED_KEPT_S
    passes(SWEEP_S)
    assert left(folder) == {failed}  # no clock says whether a study was cancelled
    for _ in range(58):
        passes(SWEEP_S)
    assert left(folder) == {failed}
    passes(2 * SWEEP_S)
    assert left(folder) == set()


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
    """Sites that a process passes; it dies at one of them.

    Args:
        fatal: How many it passes before.
    """

    def __init__(self, fatal: int) -> None:
        self._left = fatal

    @property
    def died(self) -> bool:
        return self._left < 0

    def at(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise Died

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function with a site before and one after it."""

        def announced(*given: Any) -> Any:
            self.at()
            answer = call(*given)
            self.at()
            return answer

        return announced

    def commits(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """Transactions with a site before and one after each commit."""

        @contextlib.contextmanager
        def announced(database: Database) -> Iterator[Any]:
            with write(database) as connection:
                yield connection
                self.at()
            self.at()

        return announced


def test_schedulers_that_die_anywhere_leave_nothing_of_deleted_and_expired_studies(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dies at the first commit or removal of files or logs, another at the second, until one passes them all."""
    folder, brief = str(tmp_path), Quota(retention_days=1)
    kept = ended(store, clock, folder, "PAUSED")
    for number in itertools.count():
        deleted, _ = (ended(store, clock, folder, state) for state in ("PAUSED", "FAILED"))
        store.deletions.request(deleted)
        clock.now += DAY
        sites, launcher = Sites(number), FakeLauncher()
        with monkeypatch.context() as patched, contextlib.suppress(Died):
            patched.setattr(Database, "write", sites.commits(Database.write))
            patched.setattr(checkpoints, "clear", sites.around(checkpoints.clear))
            patched.setattr(launcher, "forget", sites.around(launcher.forget))
            turns(Cleanup(store, launcher, folder, brief, clock), clock, 3)
        turns(Cleanup(store, FakeLauncher(), folder, brief, clock), clock, 3)
        assert left(folder) == {kept}, number
        assert [study.id for study in store.studies.find()] == [kept], number
        assert store.deletions.pending("files", 9) == [], number
        if not sites.died:
            break
    assert number > 12
