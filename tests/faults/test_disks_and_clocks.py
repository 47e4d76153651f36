"""A full disk, a folder that cannot be written to, a clock that is set: a clear reason, and the study goes on."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Unavailable
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.driver import checkpoints
from service.driver.lifecycle import DriverOptions, run_driver
from service.driver.ray import cluster, tune
from service.scheduler.loop import Scheduler
from service.store.store import Store
from tests.driver.stand_ins import StoreClient
from tests.faults import components
from tests.faults.fuse import Fuse
from tests.service.conftest import SPEC, Clock, new_trials
from tests.waiting import until

HOUR = 3600.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StoreClient]:
    store = Store(tmp_path / "driftline.db")
    yield StoreClient(store)
    store.close()


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Packs are trained in this process, with a checkpoint at every step."""
    monkeypatch.setattr(cluster, "connect", cluster.connect)  # put back afterwards
    monkeypatch.setattr(tune, "fit", tune.fit)
    components.without_ray(Fuse("driver", tmp_path, []), tmp_path)


def curves(store: Store, study_id: str) -> dict[str, Any]:
    return {
        trial.partition(".")[2]: {name: column for name, column in columns.items() if name != "wall_seconds"}
        for trial, columns in store.curves.columns(study_id).items()
    }


def drive(client: StoreClient, folder: Path) -> str:
    """A study driven to its end; its id."""
    study_id = client.submit(components.study())
    assert run_driver(client, study_id, threading.Event(), DriverOptions(folder)) == "SUCCEEDED"
    return study_id


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB; a folder whose writes fail when it may not be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    yield folder
    if mounted.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True)


def is_mount(folder: Path) -> bool:
    return os.path.ismount(folder)


def fail_writes(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Has every write of a checkpoint fail, as a disk does."""

    def put(url: str, data: bytes) -> None:
        raise OSError(number, os.strerror(number), url)

    monkeypatch.setattr(checkpoints, "_put", put)


def test_a_full_disk_costs_checkpoints_but_no_result(
    client: StoreClient,
    tmp_path: Path,
    disk: Path,
    no_ray: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    undisturbed = curves(client.store, drive(client, tmp_path / "room"))
    if is_mount(disk):
        with pytest.raises(OSError, match="No space left"):
            (disk / "film").write_bytes(b"x" * 100_000)
    else:
        fail_writes(monkeypatch, errno.ENOSPC)
    with caplog.at_level(logging.WARNING):
        study_id = drive(client, disk)
    assert curves(client.store, study_id) == undisturbed
    assert "no checkpoint could be written" in caplog.text
    assert "No space left on device" in caplog.text


def test_a_read_only_folder_costs_checkpoints_but_no_result(
    client: StoreClient,
    tmp_path: Path,
    disk: Path,
    no_ray: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    undisturbed = curves(client.store, drive(client, tmp_path / "room"))
    if is_mount(disk):
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    else:
        fail_writes(monkeypatch, errno.EROFS)
    with caplog.at_level(logging.WARNING):
        study_id = drive(client, disk / "below")
    assert curves(client.store, study_id) == undisturbed
    assert "Read-only file system" in caplog.text


def test_a_database_on_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "driftline.db")
    study = store.studies.create(SPEC, "f" * 64).id
    attempt = store.leases.acquire(study, holder()).attempt
    (trial,) = store.trials.create(study, attempt, new_trials("fedavg", 1))
    store.trials.start_pack(study, attempt, "p", [trial.id])

    def report(number: int) -> None:
        rounds = list(range(number * 256, number * 256 + 256))
        columns = {"round": rounds, "train_loss": [float(hash((number, each)) % 1000) for each in rounds]}
        store.curves.report(
            study, Report(attempt=attempt, pack="p", reports={trial.id: encode(columns)}, rounds_done=rounds[-1])
        )

    with store.session.write() as connection:  # the pool's one connection: SQLite says "full" at this size
        raw: Any = connection.connection.driver_connection
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        raw.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(Unavailable, match="full"):
        list(map(report, range(100)))
    stored = len(store.curves.columns(study)[trial.id]["round"]) // 256
    assert stored < 100
    assert store.studies.get(study).state == "RUNNING"
    raw.execute("PRAGMA max_page_count = 1000000")
    for number in range(stored, 100):
        report(number)
    assert store.curves.columns(study)[trial.id]["round"] == list(range(25_600))
    store.close()


class NoLauncher:
    """Counts what it is asked to start; its drivers live as long as it says."""

    def __init__(self) -> None:
        self.started = 0
        self.stopped = 0
        self.alive = False

    def kill(self, study_id: str) -> None:
        self.stopped += 1
        self.alive = False

    def start(self, launch: Any) -> None:
        self.started += 1
        self.alive = True

    def seen(self, study_id: str) -> Any:
        from service.launchers.base import Seen

        return Seen(self.alive)

    def stop(self, study_id: str) -> None:
        self.stopped += 1
        self.alive = False

    def collect(self, known: Any) -> None:
        """Nothing runs that should not."""

    def close(self) -> None:
        """Holds nothing."""


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[tuple[Store, Clock, Scheduler, NoLauncher, str]]:
    """A study that a driver on another machine holds, and the scheduler that has started it."""
    clock = Clock()
    store = Store(tmp_path / "driftline.db", clock=clock, lease_seconds=0.3)
    launcher = NoLauncher()
    scheduler = Scheduler(store, launcher, lambda study, project: "token")
    study = store.studies.create(SPEC, "f" * 64).id
    scheduler.step()
    store.leases.acquire(study, "elsewhere/1")
    assert scheduler.step() == []
    yield store, clock, scheduler, launcher, study
    store.close()


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("step", [HOUR, -HOUR, 100.0, -100.0, 31.0, -31.0, 11.0])
def test_a_clock_that_is_set_takes_no_study_from_a_driver_that_lives(
    leased: tuple[Store, Clock, Scheduler, NoLauncher, str], step: float, alive: bool
) -> None:
    store, clock, scheduler, launcher, study = leased
    if not alive:  # a scheduler that has just begun, whose launcher sees nothing of the driver
        scheduler._started.clear()
        launcher.alive = False
    clock.now += step
    assert scheduler.step() == []
    assert store.leases.heartbeat(study, 1) == "run"
    time.sleep(0.35)
    assert scheduler.step() == []
    assert (launcher.started, launcher.stopped) == (1, 0)
    assert store.studies.get(study).state == "RUNNING"
    assert store.leases.driven()[0].held


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_driver_that_is_silent_after_the_clock_was_set_is_replaced(
    leased: tuple[Store, Clock, Scheduler, NoLauncher, str], step: float
) -> None:
    store, clock, scheduler, launcher, study = leased
    launcher.alive = True
    clock.now += step
    assert scheduler.step() == []
    time.sleep(0.35)
    scheduler.step()
    clock.now += 0.4  # one lease later, not one hour
    assert scheduler.step() == []  # its process lives: it may come back
    for _ in range(6):
        clock.now += 9  # time that passes, for all that the scheduler can tell
        assert scheduler.step() == []
    clock.now += 9
    until(lambda: bool(scheduler.step()) and launcher.stopped > 0)
    until(lambda: scheduler.step() is not None and launcher.started > 1)
    assert store.leases.acquire(study, "elsewhere/2").attempt == 2


def test_a_lock_from_before_the_clock_was_set_back_ends_in_time(tmp_path: Path) -> None:
    clock = Clock()
    store = Store(tmp_path / "driftline.db", clock=clock)
    assert store.locks.take("scheduler", "elsewhere/1", 30)
    clock.now -= HOUR
    assert not store.locks.take("scheduler", "elsewhere/2", 30)
    clock.now += 31
    assert store.locks.take("scheduler", "elsewhere/2", 30)
    store.close()


def test_a_lock_of_a_process_that_is_gone_is_free_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "driftline.db")
    here = holder().rpartition("/")[0]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert store.locks.take("scheduler", f"{here}/{process.pid}/7f01", 30)
        assert not store.locks.take("scheduler", f"{holder()}/1", 30)
        process.kill()
        until(lambda: store.locks.take("scheduler", f"{holder()}/1", 30))  # dead, although nobody has taken note of it
        assert store.locks.take("scheduler", f"{here}/{process.pid}/7f01", 30) is False
    store.locks.release("scheduler", f"{holder()}/1")
    assert store.locks.take("scheduler", f"{here}/{process.pid}/7f01", 30)
    assert store.locks.take("scheduler", f"{holder()}/1", 30)  # gone altogether
    assert not store.locks.take("scheduler", f"{holder()}/2", 30)  # another one of a process that lives
    store.close()
