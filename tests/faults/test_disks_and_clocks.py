"""A full disk, a folder that cannot be written to, a clock that is set: a clear reason, and the study goes on."""

import errno
import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Unavailable
from driftline.study.trial_document import trial_document
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.driver import checkpoints
from service.driver.lifecycle import DriverOptions, run_driver
from service.driver.ray import cluster, tune
from service.scheduler.loop import Scheduler
from service.store import database
from service.store.store import Store
from tests.driver.store_client import StoreClient
from tests.faults import components
from tests.faults.fuse import Fuse
from tests.service.conftest import SPEC, Clock, new_trials
from tests.service.scheduler_setup import FakeLauncher
from tests.waiting import until

HOUR = 3600.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StoreClient]:
    store = Store(tmp_path / "driftline.db")
    yield StoreClient(store)
    store.close()


def driven(client: StoreClient, folder: Path, scratch: Path) -> dict[str, Any]:
    """The curves of a study whose packs were trained in this process, with a checkpoint at every step."""
    study_id = client.submit(components.study())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "connect", cluster.connect)  # put back afterwards
        patch.setattr(tune, "fit", tune.fit)
        components.without_ray(Fuse("driver", scratch, []), scratch)
        assert run_driver(client, study_id, threading.Event(), DriverOptions(folder)) == "SUCCEEDED"
    return {
        trial.partition(".")[2]: {name: column for name, column in columns.items() if name != "wall_seconds"}
        for trial, columns in client.store.curves.columns(study_id).items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with closing(Store(folder / "driftline.db")) as store:
        return driven(StoreClient(store), folder / "checkpoints", folder)


@pytest.mark.parametrize("lasts", [True, False], ids=["for good", "for a while"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
def test_a_disk_that_takes_no_writes_costs_checkpoints_but_no_result(
    client: StoreClient,
    tmp_path: Path,
    undisturbed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    lasts: bool,
) -> None:
    put = checkpoints._put
    tried: list[str] = []
    written: list[str] = []

    def disturbed(url: str, data: bytes) -> None:
        tried.append(url)
        if lasts or len(tried) in (3, 4):
            raise OSError(number, os.strerror(number), url)
        put(url, data)
        written.append(url)

    monkeypatch.setattr(checkpoints, "_put", disturbed)
    with caplog.at_level(logging.WARNING):
        assert driven(client, tmp_path / "below", tmp_path) == undisturbed
    assert "no checkpoint could be written" in caplog.text
    assert os.strerror(number) in caplog.text
    assert written == ([] if lasts else [*tried[:2], *tried[4:]])
    assert len(tried) > 5


LIMITED = """
import json, resource, sys
from service.driver.job import PackJob
from service.driver.ray.worker import Worker

worker = Worker.__new__(Worker)
large, small = json.loads(sys.argv[1])

def build(document):
    job = PackJob(pack="p", document=document, prefix=sys.argv[2], chunk_seconds=0.0)
    worker.take(job.config())

build(small)
worker.step()  # what torch maps at its first use counts as well
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize:"))
resource.setrlimit(resource.RLIMIT_AS, ((used << 10) + (400 << 20),) * 2)
for document in (large, small):
    build(document)
    print(worker.step()["report"])
"""


def test_a_worker_at_its_memory_limit_says_so_and_trains_the_next_pack(tmp_path: Path) -> None:
    whole = components.study()
    fits = trial_document(whole, whole.methods[0].label, [{"client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}], 0)
    large = {**fits, "task": {"name": "quadratic", "problem": "random", "clients": 20, "dimension": 2200}}
    command = [sys.executable, "-c", LIMITED, json.dumps([large, fits]), str(tmp_path / "pack")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["out_of_memory"], first["done"]) == (True, False)
    assert "\n" not in first["error"]
    assert (second["error"], second["out_of_memory"], second["rounds_done"] > 0) == (None, False, True)


def test_a_foreign_lock_on_the_database_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a program that copies the file, or that somebody has opened in a tool."""
    monkeypatch.setattr(database, "_BUSY_S", 0.5)
    store = Store(tmp_path / "driftline.db")
    study = store.studies.create(SPEC, "f" * 64).id
    attempt = store.leases.acquire(study, holder()).attempt
    with closing(sqlite3.connect(tmp_path / "driftline.db", isolation_level=None)) as foreign:
        foreign.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            with pytest.raises(Unavailable, match="locked") as caught:
                store.leases.heartbeat(study, attempt)
            assert "\n" not in str(caught.value)
        assert store.studies.get(study).state == "RUNNING"  # it can be read meanwhile
        foreign.execute("ROLLBACK")
    assert store.leases.heartbeat(study, attempt) == "run"
    assert len(store.trials.create(study, attempt, new_trials("fedavg", 2))) == 2
    store.close()


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


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[tuple[Store, Clock, Scheduler, FakeLauncher, str]]:
    """A study that a driver on another machine holds, and the scheduler that has started it."""
    clock = Clock()
    store = Store(tmp_path / "driftline.db", clock=clock, lease_seconds=0.3)
    launcher = FakeLauncher()
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
    leased: tuple[Store, Clock, Scheduler, FakeLauncher, str], step: float, alive: bool
) -> None:
    store, clock, scheduler, launcher, study = leased
    if not alive:  # a scheduler that has just begun, whose launcher sees nothing of the driver
        scheduler._started.clear()
        launcher.running.clear()
    clock.now += step
    assert scheduler.step() == []
    assert store.leases.heartbeat(study, 1) == "run"
    time.sleep(0.35)
    assert scheduler.step() == []
    assert (launcher.started, launcher.stopped, launcher.killed) == ([study], [], [])
    assert store.studies.get(study).state == "RUNNING"
    assert store.leases.driven()[0].held


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_driver_that_is_silent_after_the_clock_was_set_is_replaced(
    leased: tuple[Store, Clock, Scheduler, FakeLauncher, str], step: float
) -> None:
    store, clock, scheduler, launcher, study = leased
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
    until(lambda: bool(scheduler.step()) and (launcher.stopped or launcher.killed))
    until(lambda: scheduler.step() is not None and len(launcher.started) > 1)
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
