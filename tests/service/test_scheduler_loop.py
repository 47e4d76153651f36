"""The scheduler's loop brings every study to its end."""

from functools import partial

import pytest
import sqlalchemy as sa

from driftline.errors import Forbidden
from service.launchers.base import Launch, Seen
from service.scheduler import cleanup
from service.scheduler.reconcile import Note, Stop
from service.store.schema import TRIALS
from service.store.store import Store
from tests.waiting import until

from .conftest import SPEC, Clock, new_trials
from .scheduler_setup import SQLITE, FakeLauncher, driving, make, scheduler

pytestmark = SQLITE


def test_studies_run_one_after_the_other(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    loop.step()
    assert launcher.running == {first: (f"token {first} default", 1)}
    assert store.studies.get(second).state == "QUEUED"
    assert loop.step() == []
    store.leases.acquire(first, "elsewhere/1")
    assert loop.step() == []
    store.leases.release(first, 1, "SUCCEEDED")
    assert loop.step() == []  # its driver is still cleaning up
    launcher.running.clear()
    loop.step()
    assert launcher.started == [first, second]


def test_a_hopeless_study_fails_and_the_next_one_starts(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    loop.step()
    launcher.says[first] = Seen(True, "waits for a node")
    loop.step()
    assert (store.studies.get(first).state, store.studies.get(first).reason) == ("QUEUED", "waits for a node")
    launcher.says[first] = Seen(False, "no node has 9 GPUs", hopeless=True)
    for _ in range(2):
        loop.step()
    assert (store.studies.get(first).state, store.studies.get(first).reason) == ("FAILED", "no node has 9 GPUs")
    assert launcher.started == [first, second]


def test_what_a_launcher_says_of_a_study_that_trains_is_told(store: Store, clock: Clock) -> None:
    launcher = FakeLauncher()
    study, loop = driving(store, clock, launcher)
    for said in ("a worker was lost", "", "a worker was lost (2 so far)"):
        launcher.says[study] = Seen(True, said)
        assert loop.step() == [Note(study, 1, said)]
        assert loop.step() == []
        assert (store.studies.get(study).state, store.studies.get(study).reason) == ("RUNNING", said)
    store.leases.note(study, 2, "of another driver")
    assert store.studies.get(study).reason == "a worker was lost (2 so far)"
    store.leases.release(study, 1, "FAILED", "nothing could be trained")
    assert store.studies.get(study).reason == "nothing could be trained; a worker was lost (2 so far)"


def test_a_launch_says_what_the_study_needs_and_collect_which_there_are(store: Store, clock: Clock) -> None:
    clock.now += 1
    with_gpu = store.studies.create(
        SPEC | {"resources": {"gpu": 0.5, "cpus": 2, "pool": "a100"}}, "f" * 64, project="vision"
    ).id
    launcher = FakeLauncher()
    scheduler(store, launcher).step()
    token = f"token {with_gpu} vision"
    assert launcher.launches == [Launch(with_gpu, "small", "vision", token, 1, cpus=2.0, gpus=0.5, pool="a100")]
    assert launcher.known == {with_gpu}


def test_what_a_program_brings_is_launched_or_refused_in_one_line(store: Store, clock: Clock) -> None:
    class Able(FakeLauncher):
        secrets = images = True

    class Unable(FakeLauncher):
        secrets = images = False

    program = {"command": ["train"], "metrics": {"loss": "falls"}, "folder": ""}
    for brought in ({"secrets": ["wandb"]}, {"image": "ghcr.io/team/train:1"}):
        spec = {"name": "own", "methods": [{"label": "mine", "space": {}}], "program": {**program, **brought}}
        spec["budget"] = {"trials_per_method": 1, "rounds": 1, "seeds": 0}
        study = store.studies.create(spec, "f" * 64).id
        clock.now += 60  # the last scheduler's lock has expired
        launcher = Able()
        scheduler(store, launcher, cluster=lambda one: None).step()
        (launch,) = [launch for launch in launcher.launches if launch.study_id == study]
        assert (launch.secrets, launch.image) == (tuple(brought.get("secrets", ())), brought.get("image"))
        study = store.studies.create(spec, "f" * 64).id
        clock.now += 60
        scheduler(store, Unable(), cluster=lambda one: None).step()
        record = store.studies.get(study)
        assert record.state == "FAILED"
        assert record.reason.startswith(f"program.{next(iter(brought))}: must be left out: this service's launcher")


def test_what_a_paused_study_keeps_is_given_up_when_it_is_cancelled(store: Store, clock: Clock) -> None:
    kept, paused = make(store, clock), make(store, clock)
    store.studies.intend(paused, "pause")
    scheduler(store, launcher := FakeLauncher()).step()
    assert launcher.known == {kept, paused}
    store.studies.intend(paused, "cancel")
    clock.now += 60  # the first scheduler's lock has expired
    scheduler(store, launcher := FakeLauncher()).step()
    assert store.studies.get(paused).state == "CANCELLED"
    assert launcher.known == {kept}


def test_a_driver_that_does_not_end_after_its_release_is_stopped_paused_or_not(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher, cluster=lambda one: None)
    loop.step()
    for name in (first, second):
        store.leases.acquire(name, "elsewhere/1")
    store.studies.intend(first, "pause")
    store.leases.release(first, 1, "PAUSED")
    store.leases.release(second, 1, "SUCCEEDED")
    loop.step()
    clock.now += 61  # neither process ends
    loop.step()
    assert launcher.stopped == [first, second]


def test_a_driver_that_its_launcher_may_not_stop_is_stopped_later(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    study, loop = driving(store, clock, launcher := FakeLauncher())
    store.leases.release(study, 1, "SUCCEEDED")
    launcher.running.clear()

    def refuse(study_id: str) -> None:
        raise Forbidden("no right in namespace two")

    with monkeypatch.context() as closed:
        closed.setattr(launcher, "stop", refuse)
        assert loop.step() == loop.step() == [Stop(study, "it has ended")]
    assert "cannot be done at the moment: no right in namespace two" in caplog.text
    assert loop.step() == [Stop(study, "it has ended")]
    assert (launcher.stopped, loop.step()) == ([study], [])


def test_projects_take_turns_on_one_cluster(store: Store, clock: Clock) -> None:
    order = []
    for number, project in enumerate(["one", "one", "one", "two"]):
        clock.now += 1
        order.append(store.studies.create(SPEC | {"name": f"s{number}"}, "f" * 64, project=project).id)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    for number in range(4):
        loop.step()
        clock.now += 1
        attempt = store.leases.acquire(launcher.started[-1], f"elsewhere/{number}").attempt
        store.leases.release(launcher.started[-1], attempt, "SUCCEEDED")
        launcher.running.clear()
        loop.step()
    assert launcher.started == [order[0], order[3], order[1], order[2]]


def test_the_rows_of_deleted_studies_go_in_the_scheduler_s_turns(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "TURN_S", 0.0)  # one step a turn
    monkeypatch.setattr(store.deletions, "purge", partial(store.deletions.purge, rows=2))
    study = make(store, clock)
    attempt = store.leases.acquire(study, "elsewhere/1").attempt
    store.trials.create(study, attempt, new_trials("fedavg", 5))
    store.leases.release(study, attempt, "FAILED", "no")
    store.deletions.request(study)
    loop = scheduler(store, FakeLauncher())
    left = []
    for _ in range(4):
        with store.session.read() as connection:
            left.append(len(connection.execute(sa.select(TRIALS.c.id)).all()))
        loop.step()
    assert left == [5, 3, 1, 0]


def test_a_wake_is_followed_by_a_look_at_once(store: Store, clock: Clock) -> None:
    loop = scheduler(store, launcher := FakeLauncher(), every_s=3600.0)
    loop.start()
    until(lambda: loop.acting)
    study = make(store, clock)
    loop.wake()
    until(lambda: launcher.started == [study])
    loop.close()
