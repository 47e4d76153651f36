"""Studies continue after drivers, schedulers or launchers are lost."""

import itertools

import pytest

from driftline.errors import DriftlineError, Forbidden, InvalidSpec, NotFound, StaleDriver, Unavailable
from service.launchers.base import Launch, Seen
from service.scheduler.reconcile import Action, Kill, Lost, Stop
from service.store.store import Store

from .conftest import Clock
from .scheduler_setup import SQLITE, FakeLauncher, driving, make, scheduler

pytestmark = SQLITE


def test_a_lost_driver_is_started_again_and_again_until_the_study_fails(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    for attempt in (1, 2, 3):
        loop.step()
        assert launcher.running[name][1] == attempt
        store.leases.acquire(name, f"elsewhere/{attempt}")
        launcher.running.clear()
        loop.step()
    assert store.leases.driven()[0].deaths == 3
    assert "it is started again" in store.studies.get(name).reason
    loop.step()
    record = store.studies.get(name)
    assert (record.state, record.finished_at is not None) == ("FAILED", True)
    assert loop.step() == []
    assert launcher.started == [name] * 3


def test_drivers_that_cannot_be_started_are_counted(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    launcher = FakeLauncher()
    launcher.refuses = lambda launch: OSError("no such program")
    loop = scheduler(store, launcher)
    for _ in range(4):
        loop.step()
    record = store.studies.get(name)
    assert record.state == "FAILED"
    lost = "3 drivers in a row were lost without finishing a trial or writing a checkpoint"
    assert record.reason == f"{lost}: it could not be started: no such program; see the driver's log, then resume"
    messages = [event.data.get("message") for event in store.events.read(name)]
    assert "the driver was lost: it could not be started: no such program" in messages


@pytest.mark.parametrize("error", [Unavailable, Forbidden, NotFound])
def test_a_start_that_the_launcher_refuses_is_retried_and_its_error_shown(
    store: Store, clock: Clock, error: type[DriftlineError]
) -> None:
    def refuse(launch: Launch) -> Exception | None:
        tries.append(clock.now)
        return error("Kubernetes answers no") if clock.now < begin + 130 else None

    tries: list[float] = []
    name, begin = make(store, clock), clock.now
    launcher = FakeLauncher()
    launcher.refuses = refuse
    loop = scheduler(store, launcher)
    while not launcher.started:
        loop.step()
        if not launcher.started:
            assert store.studies.get(name).state == "QUEUED"
            assert store.studies.get(name).reason == "it cannot be started at the moment: Kubernetes answers no"
        clock.now += 1
    assert [after - before for before, after in itertools.pairwise(tries)] == [2, 4, 8, 16, 32, 60, 60]
    assert store.leases.driven()[0].deaths == 0
    states = [event for event in store.events.read(name) if event.kind == "state"]
    assert len(states) == 2  # PENDING, QUEUED: the same is not said again


def test_a_study_whose_start_is_tried_again_holds_up_no_other_and_can_be_cancelled(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    launcher.refuses = lambda launch: Forbidden("a quota does not allow it") if launch.study_id == first else None
    loop = scheduler(store, launcher)  # both on one Ray cluster
    loop.step()
    loop.step()
    assert launcher.started == [second]
    store.studies.intend(first, "cancel")
    loop.step()
    assert store.studies.get(first).state == "CANCELLED"


def test_a_start_that_can_never_succeed_fails_the_study_at_once(store: Store, clock: Clock) -> None:
    name, launcher = make(store, clock), FakeLauncher()
    launcher.refuses = lambda launch: InvalidSpec("resources.gpu", "must be at most 2, what a worker has, got 3")
    scheduler(store, launcher).step()
    record = store.studies.get(name)
    assert (record.state, record.reason) == ("FAILED", "resources.gpu: must be at most 2, what a worker has, got 3")


def test_a_driver_that_hangs_is_killed_and_replaced_once_it_has_ended(store: Store, clock: Clock) -> None:
    launcher, up = FakeLauncher(), False
    name, loop = driving(store, clock, launcher, answers=lambda: up, back_seconds=20.0)
    launcher.undying = True  # SIGKILL waits for a disk
    for _ in range(10):  # the API is away: it is not the driver's fault
        clock.now += 31
        assert loop.step() == []
    up = True
    clock.now += 20
    assert loop.step() == []
    clock.now += 1
    loop.step()
    assert (launcher.killed, launcher.stopped) == ([name], [])
    with pytest.raises(StaleDriver):  # whatever it may still send
        store.leases.heartbeat(name, 1)
    for _ in range(3):
        clock.now += 300
        loop.step()
    assert (launcher.killed, launcher.started) == ([name] * 4, [name])
    launcher.running.clear()
    loop.step()
    loop.step()
    assert launcher.running[name][1] == 2
    assert store.leases.driven()[0].deaths == 1


@pytest.mark.parametrize("driver", ["starting", "silent", "released"])
def test_a_clock_that_is_set_gives_a_driver_neither_more_time_nor_less(store: Store, clock: Clock, driver: str) -> None:
    steady = Clock()
    name, launcher = make(store, clock), FakeLauncher()
    loop = scheduler(store, launcher, steady=steady, start_seconds=60.0, back_seconds=60.0)

    def after(seconds: float) -> list[Action]:
        clock.now += seconds
        steady.now += seconds
        return loop.step()

    after(0)
    if driver != "starting":
        store.leases.acquire(name, "elsewhere/1")
    if driver == "released":
        store.leases.release(name, 1, "SUCCEEDED")
    assert after(31 if driver == "silent" else 0) == []
    clock.now += 3600
    assert [after(seconds) for seconds in (0, 30, 30)] == [[], [], []]
    assert {type(action) for action in after(1)} == ({Stop} if driver == "released" else {Lost, Kill})


def test_a_scheduler_that_takes_over_recognises_what_runs(store: Store, clock: Clock) -> None:
    held, coming = make(store, clock), make(store, clock)
    before = FakeLauncher()
    first = scheduler(store, before, cluster=lambda one: None)
    first.step()
    store.leases.acquire(held, "elsewhere/1")
    after = FakeLauncher(running=before.running)
    second = scheduler(store, after, cluster=lambda one: None)
    assert second.step() == []
    assert not second.acting
    clock.now += 31  # the first one is gone, and the lease of the driver has run out with the service
    for _ in range(3):
        second.step()
    assert second.acting
    assert after.started == after.stopped == []  # it may come back, and the other has not come yet
    store.leases.heartbeat(held, 1)
    store.leases.acquire(coming, "elsewhere/2")
    clock.now += 20
    assert second.step() == []
    after.running.clear()  # both die
    for _ in range(2):
        second.step()
    assert sorted(after.started) == sorted([held, coming])
    assert {launch.attempt for launch in after.launches} == {2}
    assert first.step() == []  # the first one, should it live, sees that it no longer acts
    assert not first.acting


def test_nothing_is_started_while_the_launcher_does_not_answer(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    launcher = FakeLauncher(running={name: ("token", 1)})
    launcher.away = True
    loop = scheduler(store, launcher)
    for _ in range(3):
        assert loop.step() == []
    launcher.away = False
    assert loop.step() == []
    assert launcher.started == []  # it was there
    launcher.running.clear()
    for _ in range(2):
        loop.step()
    assert launcher.started == [name]
    launcher.away = True  # how it is cannot be said: it is left alone
    assert loop.step() == []


def test_drivers_of_ended_studies_that_still_run_are_ended_by_the_next_scheduler(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    store.leases.acquire(name, "elsewhere/1")
    store.leases.release(name, 1, "SUCCEEDED")
    launcher = FakeLauncher(running={name: ("token", 1)})
    loop = scheduler(store, launcher)
    assert loop.step() == []
    loop.step()
    clock.now += 61
    loop.step()
    assert launcher.stopped == [name]


def test_a_scheduler_whose_lock_went_to_another_one_while_it_looked_does_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: dict[str, tuple[str, int]] = {}
    slow, quick = FakeLauncher(running=running), FakeLauncher(running=running)
    study, first = driving(store, clock, slow)
    second = scheduler(store, quick)
    running.clear()  # its driver dies
    seen = slow.seen

    def late(study_id: str) -> Seen:
        answer = seen(study_id)
        monkeypatch.setattr(slow, "seen", seen)
        for _ in range(8):
            clock.now += 5
            second.step()
        store.leases.acquire(study, "elsewhere/2")
        return answer

    monkeypatch.setattr(slow, "seen", late)
    assert first.step() == []
    assert not first.acting
    assert (slow.stopped, list(running)) == ([], [study])
    assert second.step() == []
    assert (store.leases.driven()[0].held, store.leases.driven()[0].attempt) == (True, 2)


def test_a_scheduler_that_looks_for_long_alone_goes_on_acting(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = FakeLauncher()
    study, loop = driving(store, clock, launcher)
    seen = launcher.seen

    def late(study_id: str) -> Seen:
        clock.now += 45
        return seen(study_id)

    monkeypatch.setattr(launcher, "seen", late)
    store.studies.intend(study, "cancel")
    store.leases.release(study, 1, "CANCELLED")
    launcher.running.clear()
    assert [type(action) for action in loop.step()] == [Stop]
