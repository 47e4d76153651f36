"""The scheduler: what it decides, and that its loop brings every study to its end."""

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.client import ApiClient
from service.names import holder
from service.scheduler.loop import Scheduler
from service.scheduler.reconcile import Launched, Lost, Queue, Settle, Start, Stop, reconcile
from service.schemas.protocol import TrialResult
from service.schemas.records import Values
from service.store.drivers import Driven
from service.store.store import Store

from .api_setup import eventually, running
from .conftest import SPEC, Clock, new_trials

ONE = {"a": "ray", "b": "ray", "c": "ray"}


def study(name: str, state: Any = "PENDING", **values: Any) -> Driven:
    defaults = {"reason": "", "attempt": 0, "held": False, "lost": False, "deaths": 0}
    return Driven(**{"id": name, "project": "default", "name": name, "state": state, **defaults, **values})


def ours(attempt: int = 1, alive: bool = True, since: float = 0.0, **values: Any) -> Launched:
    return Launched(attempt, alive, since, "ray", "a", **values)


# ---- decisions


def test_the_oldest_study_starts_and_the_others_wait() -> None:
    reason = "waits until study a has finished: one study at a time on a Ray cluster"
    found = reconcile([study("b"), study("a"), study("c", "QUEUED", reason=reason)], {}, ONE, 0)
    assert found == [Start("a", 1), Queue("b", reason)]  # c waits for that already


def test_studies_with_clusters_of_their_own_all_start() -> None:
    assert reconcile([study("a"), study("b")], {}, {}, 0) == [Start("a", 1), Start("b", 1)]


def test_a_study_that_ran_already_goes_before_an_older_one() -> None:
    found = reconcile([study("a"), study("b", "RUNNING", attempt=3)], {}, ONE, 0)
    assert found[0] == Start("b", 4)
    assert isinstance(found[1], Queue)


def test_nothing_to_do() -> None:
    held = study("a", "RUNNING", attempt=1, held=True)
    assert reconcile([held], {"a": ours()}, ONE, 0) == []
    assert reconcile([held], {}, ONE, 0) == []  # started by a scheduler before this one
    assert reconcile([study("a")], {"a": ours()}, ONE, 5) == []  # started, not yet there
    assert reconcile([], {}, ONE, 0) == []


def test_a_driver_whose_process_has_ended_is_lost() -> None:
    held = study("a", "RUNNING", attempt=1, held=True)
    assert reconcile([held], {"a": ours(alive=False)}, ONE, 0) == [
        Lost("a", 1, "its process has ended"),
        Stop("a", "it has ended"),
    ]
    assert reconcile([study("a")], {"a": ours(alive=False)}, ONE, 0) == [
        Lost("a", 0, "its process ended before it took the study"),
        Stop("a", "it has ended"),
    ]


def test_a_driver_that_is_silent_is_stopped_and_lost() -> None:
    silent = study("a", "RUNNING", attempt=2, lost=True)
    reason = "it was silent for longer than its lease, or its process has ended"
    assert reconcile([silent], {"a": ours(2)}, ONE, 0) == [Stop("a", "it is lost"), Lost("a", 2, reason)]
    (only,) = reconcile([silent], {}, ONE, 0)  # another scheduler had started it
    assert only == Lost("a", 2, "it went away with the service that had started it", counted=False)


def test_a_driver_that_never_comes_is_lost() -> None:
    assert reconcile([study("a")], {"a": ours()}, ONE, 600) == []
    stop, lost = reconcile([study("a")], {"a": ours()}, ONE, 601)
    assert (type(stop), lost) == (Stop, Lost("a", 0, "it did not take the study within 600 s"))


def test_a_study_whose_drivers_are_all_lost_fails() -> None:
    (only,) = reconcile([study("a", "RUNNING", attempt=2, deaths=2)], {}, ONE, 0)
    assert only == Start("a", 3)
    (only,) = reconcile([study("a", "RUNNING", attempt=3, deaths=3)], {}, ONE, 0)
    assert isinstance(only, Settle)
    assert only.state == "FAILED"
    assert only.reason.startswith("3 drivers in a row were lost")


def test_wishes_about_studies_without_a_driver_are_fulfilled() -> None:
    found = reconcile([study("a", "PAUSING", attempt=1), study("b", "CANCELLING", attempt=1)], {}, ONE, 0)
    assert found == [Settle("a", "PAUSED", ""), Settle("b", "CANCELLED", "")]
    assert reconcile([study("a", "PAUSING", attempt=1, held=True)], {"a": ours()}, ONE, 0) == []


def test_a_driver_may_clean_up_before_the_next_one_uses_the_cluster() -> None:
    ending = {"a": ours(idle_since=10.0)}
    (only,) = reconcile([study("b")], ending, ONE, 60)
    assert isinstance(only, Queue)
    assert reconcile([study("b", "QUEUED", reason=only.reason)], ending, ONE, 71)[0] == Stop(
        "a", "it has let go of its study and not ended within 60 s"
    )
    assert reconcile([study("b")], {"a": ours(alive=False, idle_since=10.0)}, ONE, 20) == [
        Stop("a", "it has ended"),
        Start("b", 1),
    ]


def test_a_driver_that_let_go_of_an_unfinished_study_is_followed_by_another_one() -> None:
    pending = study("a", "PENDING", attempt=1)
    assert reconcile([pending], {"a": ours(idle_since=0.0)}, ONE, 1) == []
    assert reconcile([pending], {"a": ours(alive=False, idle_since=0.0)}, ONE, 1) == [Stop("a", "it has ended")]
    assert reconcile([pending], {}, ONE, 2) == [Start("a", 2)]


STATES = st.sampled_from(["PENDING", "QUEUED", "RUNNING", "PAUSING", "CANCELLING"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Driven], dict[str, Launched]]:
    studies, launched = [], {}
    for name in draw(st.lists(st.sampled_from("abcde"), unique=True)):
        lease = draw(st.sampled_from(["none", "held", "lost", "released"]))
        attempt = 0 if lease == "none" else draw(st.integers(1, 3))
        if draw(st.booleans()):
            studies.append(
                study(
                    name,
                    draw(STATES),
                    attempt=attempt,
                    held=lease == "held",
                    lost=lease == "lost",
                    deaths=draw(st.integers(0, 4)),
                )
            )
        if draw(st.booleans()):
            launched[name] = ours(draw(st.integers(1, 3)), draw(st.booleans()), draw(st.floats(0, 1000)))
    return studies, launched


@given(worlds(), st.floats(0, 2000))
@settings(max_examples=300, deadline=None)
def test_decisions_are_safe(world: tuple[list[Driven], dict[str, Launched]], now: float) -> None:
    studies, launched = world
    actions = reconcile(studies, launched, dict.fromkeys("abcde", "ray"), now)
    assert actions == reconcile(studies[::-1], launched, dict.fromkeys("abcde", "ray"), now)
    starts = [action for action in actions if isinstance(action, Start)]
    assert len(starts) <= 1
    if starts:  # nothing else uses the cluster
        assert not any(known.alive for known in launched.values())
        assert not any(one.held for one in studies)
    by_id = {one.id: one for one in studies}
    for action in actions:
        if isinstance(action, Settle):  # never against a living driver
            assert not by_id[action.study_id].held
            assert action.study_id not in launched


# ---- the loop


class FakeLauncher:
    """Counts; drivers live until they are ended by hand."""

    def __init__(self, failing: int = 0) -> None:
        self.running: dict[str, tuple[str, int]] = {}
        self.stopped: list[str] = []
        self.started: list[str] = []
        self._failing = failing

    def start(self, study_id: str, token: str, attempt: int) -> None:
        if self._failing:
            self._failing -= 1
            raise OSError("no such program")
        self.started.append(study_id)
        self.running[study_id] = (token, attempt)

    def alive(self, study_id: str) -> bool:
        return study_id in self.running

    def stop(self, study_id: str) -> None:
        self.stopped.append(study_id)
        self.running.pop(study_id, None)


def scheduler(store: Store, launcher: FakeLauncher, **options: Any) -> Scheduler:
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
    assert len(launchers[1].started) == 1  # it has no way to know of the other's driver before it acquires


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
    from service.errors import Unavailable

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

    def start(self, study_id: str, token: str, attempt: int) -> None:
        thread = threading.Thread(target=self._drive, args=(study_id, self.service.client(token)))
        self._threads[study_id] = thread
        thread.start()

    def alive(self, study_id: str) -> bool:
        return study_id in self._threads and self._threads[study_id].is_alive()

    def stop(self, study_id: str) -> None:
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
