"""The scheduler's loop brings every study to its end."""

import threading
from collections.abc import Collection
from typing import Any

import pytest

from service.client import ApiClient
from service.errors import InvalidSpec, Unavailable
from service.launchers.protocol import Launch, Seen
from service.names import holder
from service.scheduler.loop import Scheduler
from service.schemas.protocol import TrialResult
from service.schemas.records import Values
from service.store.drivers import Driven
from service.store.store import Store

from .api_setup import eventually, running
from .conftest import SPEC, Clock, new_trials


class FakeLauncher:
    """Counts; drivers live until they are ended by hand. What runs may be shared with another one."""

    def __init__(self, failing: int = 0, running: dict[str, tuple[str, int]] | None = None) -> None:
        self.running: dict[str, tuple[str, int]] = {} if running is None else running
        self.stopped: list[str] = []
        self.suspended: list[str] = []
        self.started: list[str] = []
        self.launches: list[Launch] = []
        self.known: Collection[str] = ()
        self.says: dict[str, Seen] = {}
        self.away = False
        self._failing = failing

    def start(self, launch: Launch) -> None:
        if self._failing:
            self._failing -= 1
            raise OSError("no such program")
        self.launches.append(launch)
        self.started.append(launch.study_id)
        self.running[launch.study_id] = (launch.token, launch.attempt)

    def seen(self, study_id: str) -> Seen:
        if self.away:
            raise Unavailable("the cluster is away")
        return self.says.get(study_id, Seen(study_id in self.running))

    def stop(self, study_id: str, *, suspend: bool = False) -> None:
        (self.suspended if suspend else self.stopped).append(study_id)
        self.running.pop(study_id, None)

    def collect(self, known: Collection[str]) -> None:
        self.known = known

    def close(self) -> None:
        pass


def scheduler(store: Store, launcher: FakeLauncher, **options: Any) -> Scheduler:
    """One whose clocks agree: what the store's clock is moved by has passed."""
    options = {"steady": store.clock, **options}
    return Scheduler(store, launcher, lambda study_id, project: f"token {study_id} {project}", **options)


def make(store: Store, clock: Clock) -> str:
    clock.now += 1
    return store.create_study(SPEC, "f" * 64).id


def test_studies_run_one_after_the_other(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    loop.step()
    assert launcher.running == {first: (f"token {first} default", 1)}
    assert store.study(second).state == "QUEUED"
    assert loop.step() == []
    store.acquire(first, "elsewhere/1")
    assert loop.step() == []
    store.release(first, 1, "SUCCEEDED")
    assert loop.step() == []  # its driver is still cleaning up
    launcher.running.clear()
    loop.step()
    assert launcher.started == [first, second]


def test_a_lost_driver_is_started_again_and_again_until_the_study_fails(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    for attempt in (1, 2, 3):
        loop.step()
        assert launcher.running[name][1] == attempt
        store.acquire(name, f"elsewhere/{attempt}")
        launcher.running.clear()
        loop.step()
    assert store.driven()[0].deaths == 3
    assert "it is started again" in store.study(name).reason
    loop.step()
    record = store.study(name)
    assert (record.state, record.finished_at is not None) == ("FAILED", True)
    assert loop.step() == []
    assert launcher.started == [name] * 3


def test_drivers_that_cannot_be_started_are_counted(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    loop = scheduler(store, FakeLauncher(failing=9))
    for _ in range(4):
        loop.step()
    assert store.study(name).state == "FAILED"
    messages = [event.data.get("message") for event in store.events(name)]
    assert "the driver was lost: it could not be started: no such program" in messages


def test_a_start_that_can_never_succeed_fails_the_study_at_once(store: Store, clock: Clock) -> None:
    class Refusing(FakeLauncher):
        def start(self, launch: Launch) -> None:
            raise InvalidSpec("resources.gpu", "must be at most the 2 of a worker, got 3")

    name = make(store, clock)
    scheduler(store, Refusing()).step()
    record = store.study(name)
    assert (record.state, record.reason) == ("FAILED", "resources.gpu: must be at most the 2 of a worker, got 3")


def test_a_study_that_gets_on_survives_many_losses(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    for number in range(5):
        loop.step()
        attempt = store.acquire(name, f"elsewhere/{number}").attempt
        (trial,) = store.create_trials(name, attempt, new_trials("fedavg", 1, number))
        done = TrialResult(trial=trial.id, state="COMPLETE", values=Values(quality=1, speed=1))
        store.finish(name, attempt, [done])
        launcher.running.clear()
        loop.step()
    assert store.study(name).state == "RUNNING"


def test_a_new_scheduler_finds_everything_in_the_store(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    before = scheduler(store, FakeLauncher())
    before.step()
    store.acquire(name, "elsewhere/1")
    before.close()
    launcher = FakeLauncher()
    after = scheduler(store, launcher)
    assert after.step() == []  # the driver lives
    clock.now += 31
    after.step()
    after.step()
    assert launcher.running[name][1] == 2
    assert store.driven()[0].deaths == 0  # it is not the study's fault that the service went away


def test_a_study_of_a_killed_process_goes_on_at_once(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    for number in range(5):
        store.acquire(name, f"{holder().rpartition('/')[0]}/{2**22 + 1 + number}")  # processes of this host, gone
        launcher = FakeLauncher()
        loop = scheduler(store, launcher)
        loop.step()
        loop.step()
        assert launcher.started == [name]
        loop.close()
    assert store.study(name).state == "RUNNING"


def test_two_schedulers_do_not_start_a_study_twice(store: Store, clock: Clock) -> None:
    make(store, clock)
    launchers = FakeLauncher(), FakeLauncher()
    loops = [scheduler(store, launcher) for launcher in launchers]
    for _ in range(3):
        for loop in loops:
            loop.step()
    assert [len(launcher.started) for launcher in launchers] == [1, 0]
    loops[0].close()
    loops[1].step()
    assert len(launchers[1].started) == 1  # its launcher does not see what the other one's has started


def test_a_scheduler_that_takes_over_recognises_what_runs(store: Store, clock: Clock) -> None:
    held, coming = make(store, clock), make(store, clock)
    before = FakeLauncher()
    first = scheduler(store, before, cluster=lambda one: None)
    first.step()
    store.acquire(held, "elsewhere/1")
    after = FakeLauncher(running=before.running)
    second = scheduler(store, after, cluster=lambda one: None)
    assert second.step() == []
    assert not second.acting
    clock.now += 31  # the first one is gone, and the lease of the driver has run out with the service
    for _ in range(3):
        second.step()
    assert second.acting
    assert after.started == after.stopped == []  # it may come back, and the other has not come yet
    store.heartbeat(held, 1)
    store.acquire(coming, "elsewhere/2")
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


def test_a_hopeless_study_fails_and_the_next_one_starts(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    loop.step()
    launcher.says[first] = Seen(True, "waits for a node")
    loop.step()
    assert (store.study(first).state, store.study(first).reason) == ("QUEUED", "waits for a node")
    launcher.says[first] = Seen(False, "no node has 9 GPUs", hopeless=True)
    for _ in range(2):
        loop.step()
    assert (store.study(first).state, store.study(first).reason) == ("FAILED", "no node has 9 GPUs")
    assert launcher.started == [first, second]


def test_a_launch_says_what_the_study_needs_and_collect_which_there_are(store: Store, clock: Clock) -> None:
    clock.now += 1
    with_gpu = store.create_study(SPEC | {"resources": {"gpu": 0.5, "cpus": 2}}, "f" * 64, project="vision").id
    launcher = FakeLauncher()
    scheduler(store, launcher).step()
    token = f"token {with_gpu} vision"
    assert launcher.launches == [Launch(with_gpu, "small", "vision", token, 1, cpus=2.0, gpus=0.5)]
    assert launcher.known == {with_gpu}


def test_what_a_paused_study_keeps_is_given_up_when_it_is_cancelled(store: Store, clock: Clock) -> None:
    kept, paused = make(store, clock), make(store, clock)
    store.intend(paused, "pause")
    scheduler(store, launcher := FakeLauncher()).step()
    assert launcher.known == {kept, paused}
    store.intend(paused, "cancel")
    clock.now += 60  # the first scheduler's lock has expired
    scheduler(store, launcher := FakeLauncher()).step()
    assert store.study(paused).state == "CANCELLED"
    assert launcher.known == {kept}


def test_what_a_paused_study_leaves_is_suspended_and_of_a_finished_one_stopped(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher, cluster=lambda one: None)
    loop.step()
    for name in (first, second):
        store.acquire(name, "elsewhere/1")
    store.intend(first, "pause")
    store.release(first, 1, "PAUSED")
    store.release(second, 1, "SUCCEEDED")
    loop.step()
    clock.now += 61  # neither process ends
    loop.step()
    assert (launcher.suspended, launcher.stopped) == ([first], [second])


def test_drivers_of_ended_studies_that_still_run_are_ended_by_the_next_scheduler(store: Store, clock: Clock) -> None:
    name = make(store, clock)
    store.acquire(name, "elsewhere/1")
    store.release(name, 1, "SUCCEEDED")
    launcher = FakeLauncher(running={name: ("token", 1)})
    loop = scheduler(store, launcher)
    assert loop.step() == []
    loop.step()
    clock.now += 61
    loop.step()
    assert launcher.stopped == [name]


def test_projects_take_turns_on_one_cluster(store: Store, clock: Clock) -> None:
    order = []
    for number, project in enumerate(["one", "one", "one", "two"]):
        clock.now += 1
        order.append(store.create_study(SPEC | {"name": f"s{number}"}, "f" * 64, project=project).id)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher)
    for number in range(4):
        loop.step()
        clock.now += 1
        attempt = store.acquire(launcher.started[-1], f"elsewhere/{number}").attempt
        store.release(launcher.started[-1], attempt, "SUCCEEDED")
        launcher.running.clear()
        loop.step()
    assert launcher.started == [order[0], order[3], order[1], order[2]]


def test_pausing_and_cancelling(store: Store, clock: Clock) -> None:
    first, second = make(store, clock), make(store, clock)
    launcher = FakeLauncher()
    loop = scheduler(store, launcher, cluster=lambda one: None)
    loop.step()
    assert set(launcher.running) == {first, second}
    for name in (first, second):
        store.acquire(name, "elsewhere/1")
    store.intend(first, "pause")
    store.intend(second, "cancel")
    assert loop.step() == []  # it is for their drivers to stop
    store.release(first, 1, "PAUSED")
    launcher.running.clear()  # the second one's driver dies before it has heard of it
    for _ in range(3):
        loop.step()
    assert (store.study(first).state, store.study(second).state) == ("PAUSED", "CANCELLED")
    store.intend(first, "resume")
    loop.step()
    assert launcher.running[first][1] == 2


def test_a_step_that_fails_is_tried_again(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher()
    failures = []
    driven = sqlite_store.driven

    def flaky() -> list[Driven]:
        if len(failures) < 2:
            failures.append(1)
            raise Unavailable("the database is away")
        return driven()

    monkeypatch.setattr(sqlite_store, "driven", flaky)
    sqlite_store.create_study(SPEC, "f" * 64)
    loop = scheduler(sqlite_store, launcher, every_s=0.01)
    loop.start()
    eventually(lambda: launcher.started)
    loop.close()


class ThreadLauncher:
    """Drives studies in threads of this process, over the API; the first one dies."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.service: Any = None
        self._threads: dict[str, threading.Thread] = {}

    def start(self, launch: Launch) -> None:
        thread = threading.Thread(target=self._drive, args=(launch.study_id, self.service.client(launch.token)))
        self._threads[launch.study_id] = thread
        thread.start()

    def seen(self, study_id: str) -> Seen:
        return Seen(study_id in self._threads and self._threads[study_id].is_alive())

    def collect(self, known: Collection[str]) -> None:
        pass

    def close(self) -> None:
        pass

    def stop(self, study_id: str, *, suspend: bool = False) -> None:
        thread = self._threads.pop(study_id, None)
        if thread is not None:
            thread.join()

    def _drive(self, study_id: str, client: ApiClient) -> None:
        with client:
            attempt = client.acquire(study_id, holder()).attempt
            trials = [trial.id for trial in client.create_trials(study_id, attempt, new_trials("fedavg", 2))]
            client.start_pack(study_id, attempt, f"p{attempt}", trials)
            if self.deaths:
                self.deaths -= 1
                return
            values = Values(quality=1.0, speed=1.0)
            done = [TrialResult(trial=trial, state="COMPLETE", values=values) for trial in trials]
            client.finish(study_id, attempt, done)
            client.release(study_id, attempt, "SUCCEEDED")


def test_studies_from_submission_to_success_over_the_api(sqlite_store: Store) -> None:
    launcher = ThreadLauncher(deaths=1)
    woken: list[Scheduler] = []
    with running(sqlite_store, wake=lambda: [loop.wake() for loop in woken]) as service:
        launcher.service = service
        loop = Scheduler(sqlite_store, launcher, service.tokens.driver, every_s=0.05)
        woken.append(loop)
        loop.start()
        with service.client() as client:
            ids = [client.create(SPEC | {"name": f"s{number}"}).id for number in range(3)]
            eventually(lambda: all(client.study(one).finished for one in ids), 20)
            assert {client.study(one).state for one in ids} == {"SUCCEEDED"}
            assert sorted(trial.attempt for one in ids for trial in client.trials(one)) == [1, 1, 1, 1, 2, 2]
        loop.close()
