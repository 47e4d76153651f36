"""The contract of a store; every test runs on SQLite and on PostgreSQL."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from service.errors import Conflict, InvalidSpec, NotFound, StaleDriver
from service.names import holder
from service.schemas.protocol import NewTrial, Report, TrialResult
from service.schemas.records import Values
from service.store.drivers import gone
from service.store.records import Recorded
from service.store.store import Store

from .conftest import SPEC, Clock, new_trials

ELSEWHERE = "another-host/77"


def make(store: Store, **options: Any) -> str:
    return store.create_study(SPEC, "f" * 64, **options).id


def driven(store: Store, count: int = 2) -> tuple[str, int, list[str]]:
    """A study with a driver and trials of fedavg."""
    study = make(store)
    attempt = store.acquire(study, holder()).attempt
    return study, attempt, [trial.id for trial in store.create_trials(study, attempt, new_trials("fedavg", count))]


def report(attempt: int, trial: str, rounds: range, pack: str = "p1", **options: Any) -> Report:
    columns = {"round": list(rounds), "train_loss": [1.0 / (1 + number) for number in rounds]}
    return Report(attempt=attempt, pack=pack, reports={trial: columns}, rounds_done=max(rounds, default=0), **options)


def complete(trial: str, quality: float = 0.5) -> TrialResult:
    return TrialResult(trial=trial, state="COMPLETE", values=Values(quality=quality, speed=0.25))


# ---- studies


def test_a_new_study_is_pending_with_its_spec_and_times(store: Store, clock: Clock) -> None:
    record = store.create_study(SPEC, "f" * 64)
    assert (record.state, record.version, record.name, record.project) == ("PENDING", 0, "small", "default")
    assert record.spec == SPEC
    assert record.created_at == datetime.fromtimestamp(clock.now, UTC)
    assert store.study(record.id) == record
    assert list(record.progress) == ["fedavg", "fedprox"]
    assert record.progress["fedavg"].rounds_total == (4 + 1 * 2) * 10


def test_records_are_frozen(store: Store) -> None:
    with pytest.raises(ValidationError):
        store.study(make(store)).state = "RUNNING"  # type: ignore[misc]


def test_unknown_study(store: Store) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: store.study("no"),
        lambda: store.trials("no"),
        lambda: store.curves("no"),
        lambda: store.events("no"),
        lambda: store.glance("no"),
        lambda: store.acquire("no", "h/1"),
        lambda: store.intend("no", "pause"),
    ]
    for ask in wrong:
        with pytest.raises(NotFound, match="no study 'no'"):
            ask()


def test_studies_come_newest_first_by_project_and_in_pages(store: Store, clock: Clock) -> None:
    ids = []
    for number in range(5):
        clock.now += 1
        ids.append(store.create_study(SPEC | {"name": f"s{number}"}, "f" * 64).id)
    other = make(store, project="other")
    assert [study.id for study in store.studies(project="default")] == ids[::-1]
    assert [study.id for study in store.studies(project="default", before=ids[3], limit=2)] == [ids[2], ids[1]]
    assert [study.id for study in store.studies(project="other")] == [other]
    assert len(store.studies()) == 6
    assert store.study(other, project="other").id == other
    with pytest.raises(NotFound):
        store.study(other, project="default")


def test_an_idempotency_key_gives_the_same_study(store: Store, clock: Clock) -> None:
    first = make(store, key="k", request_hash="a")
    assert make(store, key="k", request_hash="a") == first
    assert make(store, project="other", key="k", request_hash="b") != first
    with pytest.raises(InvalidSpec, match="another one; take a fresh key"):
        make(store, key="k", request_hash="b")
    assert len(store.studies(project="default")) == 1
    clock.now += 8 * 24 * 3600
    assert make(store, key="k", request_hash="b") != first


def test_keys_used_at_the_same_time_make_one_study(store: Store) -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(make(store, key="k", request_hash="a"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    assert len(set(made)) == len(store.studies()) == 1


@pytest.mark.parametrize(
    ("intents", "state"),
    [
        (["pause"], "PAUSED"),
        (["pause", "pause"], "PAUSED"),
        (["pause", "resume"], "PENDING"),
        (["resume"], "PENDING"),
        (["cancel"], "CANCELLED"),
        (["pause", "cancel", "cancel"], "CANCELLED"),
    ],
)
def test_wishes_without_a_driver_are_fulfilled_at_once(store: Store, intents: list[str], state: str) -> None:
    study = make(store)
    for intent in intents:
        record = store.intend(study, intent)
    assert record.state == store.study(study).state == state
    assert (record.finished_at is not None) == (state == "CANCELLED")


def test_wishes_with_a_driver_are_heard_by_its_heartbeat(store: Store) -> None:
    study, attempt, _ = driven(store)
    assert store.study(study).state == "RUNNING"
    assert store.heartbeat(study, attempt) == "run"
    assert store.intend(study, "pause").state == "PAUSING"
    assert store.heartbeat(study, attempt) == "pause"
    assert store.intend(study, "resume").state == "RUNNING"
    assert store.heartbeat(study, attempt) == "run"
    assert store.intend(study, "cancel").state == "CANCELLING"
    assert store.heartbeat(study, attempt) == "cancel"
    with pytest.raises(Conflict, match="pause needs a study that is PENDING"):
        store.intend(study, "pause")


def test_other_resources_leave_the_rest_of_a_study_alone(store: Store) -> None:
    study = make(store)
    store.set_resources(study, {"gpu": 0, "cpus": 2})
    assert store.study(study).spec == SPEC | {"resources": {"gpu": 0, "cpus": 2}}
    assert store.study(study).version == 0


def test_mlflow_url(store: Store) -> None:
    study = make(store)
    store.set_mlflow_url(study, "http://mlflow/#/experiments/1")
    assert store.study(study).mlflow_url == "http://mlflow/#/experiments/1"


# ---- drivers


def test_one_driver_at_a_time(store: Store, clock: Clock) -> None:
    study = make(store)
    lease = store.acquire(study, ELSEWHERE)
    assert (lease.attempt, lease.lease_seconds) == (1, 30.0)
    clock.now += 29
    with pytest.raises(Conflict, match="attempt 1 of another-host/77 holds study"):
        store.acquire(study, "third-host/1")
    store.heartbeat(study, 1)
    clock.now += 29
    with pytest.raises(Conflict):
        store.acquire(study, "third-host/1")
    clock.now += 2
    assert store.acquire(study, "third-host/1").attempt == 2
    assert [(one.attempt, one.held, one.deaths) for one in store.driven()] == [(2, True, 0)]


def test_a_lease_is_kept_by_writing(store: Store, clock: Clock) -> None:
    study = make(store)
    store.acquire(study, ELSEWHERE)
    for _ in range(4):
        clock.now += 20
        store.create_trials(study, 1, new_trials("fedavg", 1))
    assert store.driven()[0].held


def test_the_same_holder_may_ask_again(store: Store) -> None:
    study = make(store)
    assert [store.acquire(study, ELSEWHERE).attempt for _ in range(3)] == [1, 2, 3]
    assert store.driven()[0].deaths == 0
    with pytest.raises(StaleDriver):
        store.heartbeat(study, 2)


def test_a_dead_process_of_this_host_is_replaced_at_once(store: Store) -> None:
    study = make(store)
    store.acquire(study, f"{holder().rpartition('/')[0]}/{2**22 + 1}")  # above any process id
    assert [(one.held, one.lost) for one in store.driven()] == [(False, True)]
    assert store.acquire(study, holder()).attempt == 2
    assert not gone(holder())
    assert not gone(ELSEWHERE)
    assert not gone("nonsense")


def test_every_write_of_a_stale_driver_is_refused(store: Store, clock: Clock) -> None:
    study, old, trials = driven(store)
    store.start_pack(study, old, "p1", trials[:1])
    store.report(study, report(old, trials[0], range(3), checkpoint="c1", plan={"width": 1}))
    clock.now += 31
    new = store.acquire(study, ELSEWHERE).attempt
    before = (store.study(study), store.trials(study), store.curves(study), store.events(study))
    writes: list[Callable[[], object]] = [
        lambda: store.heartbeat(study, old),
        lambda: store.create_trials(study, old, new_trials("fedavg", 9)),
        lambda: store.start_pack(study, old, "p2", trials),
        lambda: store.report(study, report(old, trials[0], range(9))),
        lambda: store.finish(study, old, [complete(trials[0])]),
        lambda: store.release(study, old, "FAILED"),
    ]
    for write in writes:
        with pytest.raises(StaleDriver, match="attempt 2 does; stop this driver"):
            write()
    assert (store.study(study), store.trials(study), store.curves(study), store.events(study)) == before
    assert (old, new) == (1, 2)


def test_a_takeover_keeps_what_trials_have_done(store: Store, clock: Clock) -> None:
    study, attempt, trials = driven(store)
    store.start_pack(study, attempt, "p1", trials)
    store.report(study, report(attempt, trials[0], range(4), checkpoint="c1", plan={"width": 2}))
    store.finish(study, attempt, [complete(trials[1])])
    clock.now += 31
    store.acquire(study, ELSEWHERE)
    first, second = store.trials(study)
    assert (first.state, first.rounds_done, first.checkpoint, first.plan) == ("WAITING", 3, "c1", {"width": 2})
    assert (first.attempt, second.state) == (1, "COMPLETE")
    assert store.curves(study, [first.id])[first.id]["round"] == [0, 1, 2, 3]


@pytest.mark.parametrize("state", ["PAUSED", "CANCELLED", "FAILED", "SUCCEEDED"])
def test_a_release_says_how_the_study_ended(store: Store, state: Any) -> None:
    study, attempt, trials = driven(store)
    store.start_pack(study, attempt, "p1", trials)
    if state == "PAUSED":
        store.intend(study, "pause")
    if state == "CANCELLED":
        store.intend(study, "cancel")
    if state == "SUCCEEDED":
        store.finish(study, attempt, [complete(trial) for trial in trials])
    assert store.release(study, attempt, state, "so it is") == state
    assert store.release(study, attempt, state, "so it is") == state  # sent twice
    record = store.study(study)
    assert (record.state, record.reason) == (state, "so it is")
    states = {"PAUSED": "WAITING", "FAILED": "WAITING", "CANCELLED": "CANCELLED", "SUCCEEDED": "COMPLETE"}
    assert {trial.state for trial in store.trials(study)} == {states[state]}
    with pytest.raises(StaleDriver):
        store.heartbeat(study, attempt)
    if state != "PAUSED":
        with pytest.raises(Conflict, match="needs no driver"):
            store.acquire(study, holder())


def test_a_study_succeeds_only_when_all_trials_are_finished(store: Store) -> None:
    study, attempt, trials = driven(store)
    store.finish(study, attempt, [complete(trials[0])])
    with pytest.raises(Conflict, match="got 1 that are not"):
        store.release(study, attempt, "SUCCEEDED")
    assert store.study(study).state == "RUNNING"


def test_a_pause_that_nobody_wanted_is_started_again(store: Store) -> None:
    study, attempt, _ = driven(store)
    assert store.release(study, attempt, "PAUSED", "its machine goes away") == "PENDING"
    assert store.acquire(study, holder()).attempt == 2


def test_only_the_owner_cancels(store: Store) -> None:
    study, attempt, _ = driven(store)
    with pytest.raises(Conflict, match="only its owner cancels"):
        store.release(study, attempt, "CANCELLED")


def test_a_failed_study_may_be_resumed(store: Store) -> None:
    study, attempt, _ = driven(store)
    store.release(study, attempt, "FAILED", "no GPU")
    assert store.study(study).finished_at is not None
    record = store.intend(study, "resume")
    assert (record.state, record.reason, record.finished_at) == ("PENDING", "", None)


def test_lost_drivers_are_counted_until_a_trial_finishes(store: Store) -> None:
    study, attempt, trials = driven(store)
    assert store.lost(study, attempt, "killed") == 1
    assert store.lost(study, attempt, "killed") == 1  # seen twice
    attempt = store.acquire(study, holder()).attempt
    assert store.lost(study, attempt, "the machine was restarted", counted=False) == 1
    assert {trial.state for trial in store.trials(study)} == {"WAITING"}
    with pytest.raises(StaleDriver):
        store.heartbeat(study, attempt)
    attempt = store.acquire(study, holder()).attempt
    assert store.lost(study, attempt, "killed") == 2
    attempt = store.acquire(study, holder()).attempt
    store.finish(study, attempt, [complete(trials[0])])
    assert store.driven()[0].deaths == 0
    assert store.lost(study, attempt, "killed") == 1


def test_a_driver_that_never_came_is_counted(store: Store) -> None:
    study = make(store)
    assert [store.lost(study, 0, "no such program") for _ in range(2)] == [1, 2]
    assert store.acquire(study, holder()).attempt == 1
    assert store.driven()[0].deaths == 2
    store.lost(study, 1, "again")
    store.settle(study, "FAILED", "three drivers were lost")
    assert store.study(study).state == "FAILED"
    assert store.intend(study, "resume").state == "PENDING"
    assert store.driven()[0].deaths == 0


def test_a_study_that_is_held_is_settled_by_its_driver_alone(store: Store, clock: Clock) -> None:
    study, attempt, _ = driven(store)
    store.intend(study, "pause")
    with pytest.raises(Conflict, match=f"attempt {attempt} holds"):
        store.settle(study, "PAUSED")
    clock.now += 31
    store.settle(study, "PAUSED")
    assert store.study(study).state == "PAUSED"
    with pytest.raises(StaleDriver):
        store.heartbeat(study, attempt)


# ---- trials


def test_trials_are_created_once(store: Store) -> None:
    study, attempt, _ = driven(store, 0)
    asked = [
        NewTrial(label="fedprox", phase="search", number=1, seed=0, hyperparameters={"client_lr": 0.1, "prox": 0}),
        NewTrial(label="fedavg", phase="front", number=0, seed=1, setting=3, hyperparameters={"client_lr": 1e-3}),
        NewTrial(label="fedavg", phase="search", number=10, seed=0, hyperparameters={"client_lr": 0.5}),
        NewTrial(label="fedavg", phase="search", number=2, seed=0, hyperparameters={"client_lr": 1 / 3}),
    ]
    made = store.create_trials(study, attempt, asked)
    version = store.study(study).version
    assert [(trial.label, trial.phase, trial.number) for trial in made] == [
        (new.label, new.phase, new.number) for new in asked
    ]
    assert made[0].id == f"{study}.fedprox.s00001"
    assert made[3].hyperparameters == {"client_lr": 1 / 3}
    assert store.create_trials(study, attempt, asked[::-1]) == made[::-1]
    assert store.study(study).version == version
    # label, search before front, number
    assert [trial.id for trial in store.trials(study)] == [made[3].id, made[2].id, made[1].id, made[0].id]
    with pytest.raises(Conflict, match="exists with another seed; take the next number"):
        store.create_trials(study, attempt, [*new_trials("fedavg", 1, 7), asked[3].model_copy(update={"seed": 5})])
    assert len(store.trials(study)) == 4  # nothing of a refused request is stored


def test_trials_by_label_phase_state_and_in_pages(store: Store) -> None:
    study, attempt, trials = driven(store, 3)
    store.create_trials(study, attempt, new_trials("fedprox", 2))
    front = NewTrial(label="fedavg", phase="front", number=0, seed=1, setting=0, hyperparameters={})
    (front_id,) = (trial.id for trial in store.create_trials(study, attempt, [front]))
    store.start_pack(study, attempt, "p1", trials[:1])
    assert len(store.trials(study, label="fedprox")) == 2
    assert [trial.id for trial in store.trials(study, phase="front")] == [front_id]
    assert [trial.id for trial in store.trials(study, state="RUNNING")] == trials[:1]
    everything = store.trials(study)
    assert len(everything) == 6
    walked = []
    after = None
    while page := store.trials(study, after=after, limit=2):
        walked += page
        after = (page[-1].label, page[-1].phase, page[-1].number)
    assert walked == everything
    assert store.trial(study, front_id).setting == 0
    with pytest.raises(NotFound, match="has no trial 'x'"):
        store.trial(study, "x")


def test_packs_start_trials_once(store: Store) -> None:
    study, attempt, trials = driven(store, 3)
    started = store.start_pack(study, attempt, "p1", trials[1::-1])
    assert [(trial.id, trial.state, trial.attempt, trial.pack) for trial in started] == [
        (trials[1], "RUNNING", 1, "p1"),
        (trials[0], "RUNNING", 1, "p1"),
    ]
    version = store.study(study).version
    assert store.start_pack(study, attempt, "p1", trials[1::-1]) == started
    assert store.study(study).version == version
    with pytest.raises(Conflict, match="runs in pack p1; hand it back"):
        store.start_pack(study, attempt, "p2", [trials[2], trials[0]])
    assert store.trial(study, trials[2]).state == "WAITING"
    store.finish(study, attempt, [TrialResult(trial=trials[0], state="WAITING")])
    assert store.start_pack(study, attempt, "p2", trials[:1])[0].attempt == 2
    store.finish(study, attempt, [complete(trials[0])])
    with pytest.raises(Conflict, match="a finished trial is final"):
        store.start_pack(study, attempt, "p3", trials[:1])
    with pytest.raises(NotFound):
        store.start_pack(study, attempt, "p3", [f"{study}.fedavg.s99999"])


def test_a_finished_trial_is_final(store: Store) -> None:
    study, attempt, trials = driven(store, 4)
    results = [
        complete(trials[0], 0.9),
        TrialResult(trial=trials[1], state="DIVERGED"),
        TrialResult(trial=trials[2], state="FAILED", error="out of memory"),
    ]
    version = store.finish(study, attempt, results)
    assert store.finish(study, attempt, results) == version
    for different in (
        complete(trials[0], 0.8),
        TrialResult(trial=trials[0], state="DIVERGED"),
        TrialResult(trial=trials[0], state="WAITING"),
        complete(trials[1]),
        TrialResult(trial=trials[2], state="FAILED", error="another"),
    ):
        with pytest.raises(Conflict, match="final"):
            store.finish(study, attempt, [complete(trials[3]), different])
    assert [trial.state for trial in store.trials(study)] == ["COMPLETE", "DIVERGED", "FAILED", "WAITING"]
    first, _, third, _ = store.trials(study)
    assert first.values == Values(quality=0.9, speed=0.25)
    assert third.error == "out of memory"
    assert first.finished


def test_progress_counts_trials_and_rounds(store: Store) -> None:
    study, attempt, trials = driven(store, 3)
    store.start_pack(study, attempt, "p1", trials[:2])
    store.report(study, report(attempt, trials[0], range(6)))
    store.finish(study, attempt, [TrialResult(trial=trials[0], state="DIVERGED")])
    progress = store.study(study).progress["fedavg"]
    assert progress.search == {"DIVERGED": 1, "RUNNING": 1, "WAITING": 1}
    assert progress.rounds_done == 5 + 5  # both trials of the pack
    assert progress.rounds_total == 5 + 5 * 10  # the diverged one is shorter; five are still to be finished
    assert store.study(study).progress["fedprox"].rounds_total == 60


# ---- curves


def test_reports_are_upserted_by_round(store: Store) -> None:
    study, attempt, (trial, other) = driven(store)
    store.start_pack(study, attempt, "p1", [trial, other])

    def send(rounds: list[int], loss: list[float | None], **more: Any) -> int:
        columns = {"round": rounds, "train_loss": loss, **more}
        return store.report(
            study, Report(attempt=attempt, pack="p1", reports={trial: columns}, rounds_done=max(rounds))
        )

    send([0, 1], [None, 0.5], test_accuracy=[0.1, None])
    version = send([1, 2], [0.25, 1 / 3], bytes_up=[10, 20], diverged=[False, True])
    assert store.curves(study)[trial] == {
        "round": [0, 1, 2],
        "train_loss": [None, 0.25, 1 / 3],
        "test_accuracy": [0.1, None, None],
        "bytes_up": [None, 10, 20],
        "diverged": [None, False, True],
    }
    assert send([1, 2], [0.25, 1 / 3], bytes_up=[10, 20], diverged=[False, True]) == version
    assert send([2, 3], [float("nan"), float("inf")]) == version + 1
    assert store.curves(study, [trial, other]) == {
        trial: {
            "round": [0, 1, 2, 3],
            "train_loss": [None, 0.25, None, None],
            "test_accuracy": [0.1, None, None, None],
            "bytes_up": [None, 10, None, None],
            "diverged": [None, False, None, None],
        },
        other: {"round": []},
    }
    assert [type(value) for value in store.curves(study)[trial]["bytes_up"][:2]] == [type(None), int]


def test_curves_over_several_segments(store: Store) -> None:
    study, attempt, (trial, _) = driven(store)
    store.start_pack(study, attempt, "p1", [trial])
    store.report(study, report(attempt, trial, range(200)))
    store.report(study, report(attempt, trial, range(150, 700)))
    columns = store.curves(study)[trial]
    assert columns["round"] == list(range(700))
    assert columns["train_loss"] == [1.0 / (1 + number) for number in range(700)]


def test_a_report_moves_all_trials_of_its_pack(store: Store) -> None:
    study, attempt, trials = driven(store, 3)
    store.start_pack(study, attempt, "p1", trials[:2])
    store.report(study, report(attempt, trials[0], range(8), checkpoint="file:///c7", plan={"oracle": "loop"}))
    first, second, third = store.trials(study)
    assert (first.rounds_done, first.checkpoint, first.plan) == (7, "file:///c7", {"oracle": "loop"})
    assert (second.rounds_done, second.checkpoint, second.plan) == (7, "file:///c7", {"oracle": "loop"})
    assert (third.rounds_done, third.checkpoint, third.plan) == (0, None, None)
    store.report(study, Report(attempt=attempt, pack="p1", rounds_done=9))
    assert store.trial(study, trials[0]).rounds_done == 9
    assert store.trial(study, trials[0]).checkpoint == "file:///c7"  # None leaves the old one


def test_a_late_report_may_say_nothing_new(store: Store) -> None:
    study, attempt, (trial, other) = driven(store)
    store.start_pack(study, attempt, "p1", [trial, other])
    version = store.report(study, report(attempt, trial, range(5)))
    version = store.finish(study, attempt, [complete(trial)])
    assert store.report(study, report(attempt, trial, range(5)).model_copy(update={"rounds_done": 4})) == version
    with pytest.raises(Conflict, match="is COMPLETE and runs nowhere, got a new report of pack p1"):
        store.report(study, report(attempt, trial, range(6)))
    store.finish(study, attempt, [TrialResult(trial=other, state="WAITING")])
    store.start_pack(study, attempt, "p2", [other])
    with pytest.raises(Conflict, match="runs in pack p2"):
        store.report(study, report(attempt, other, range(3)))
    assert store.curves(study, [other]) == {other: {"round": []}}


def test_a_report_about_an_unknown_trial_stores_nothing(store: Store) -> None:
    study, attempt, (trial, _) = driven(store)
    store.start_pack(study, attempt, "p1", [trial])
    columns = {"round": [0], "train_loss": [1.0]}
    with pytest.raises(NotFound):
        store.report(
            study,
            Report(attempt=attempt, pack="p1", reports={trial: columns, "x": columns}, rounds_done=0),
        )
    assert store.curves(study) == {}


# ---- events, recorder, locks, facts


def test_events_tell_the_story_and_keep_one_progress(store: Store) -> None:
    study, attempt, trials = driven(store, 1)
    store.start_pack(study, attempt, "p1", trials)
    for last in range(1, 5):
        store.report(study, report(attempt, trials[0], range(last + 1)))
    store.finish(study, attempt, [complete(trials[0])])
    store.log(study, "info", "all is well")
    store.release(study, attempt, "SUCCEEDED")
    events = store.events(study)
    assert [event.kind for event in events] == ["state", "state", "progress", "log", "state"]
    assert [event.data["state"] for event in events if event.kind == "state"] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert events[2].data["version"] == store.study(study).version == 7
    assert events[2].data["progress"]["fedavg"]["search"] == {"COMPLETE": 1}  # type: ignore[index,call-overload]
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert store.events(study, after=events[1].id, limit=2) == events[2:4]


def test_an_event_id_is_never_given_twice(store: Store) -> None:
    study, attempt, trials = driven(store, 1)
    newest = store.events(study)[-1].id
    store.start_pack(study, attempt, "p1", trials)  # takes the place of the newest event
    assert store.events(study)[-1].id > newest


def test_recorder_state(store: Store) -> None:
    study, other = make(store), make(store)
    store.record(study, Recorded("trial", "a", "run-1", 3, 10), Recorded("study", "", "run-0", 3))
    store.record(study, Recorded("trial", "a", "run-1", 5, 20))
    assert store.recorded(study) == [Recorded("study", "", "run-0", 3, 0), Recorded("trial", "a", "run-1", 5, 20)]
    assert store.recorded(study, "study") == [Recorded("study", "", "run-0", 3, 0)]
    assert store.recorded(other) == []
    with pytest.raises(NotFound):
        store.record("no", Recorded("study", "", "r"))


def test_locks_expire_and_are_renewed(store: Store, clock: Clock) -> None:
    assert store.lock("scheduler", "a", 10)
    assert not store.lock("scheduler", "b", 10)
    assert store.lock("recorder", "b", 10)
    clock.now += 9
    assert store.lock("scheduler", "a", 10)
    clock.now += 9
    assert not store.lock("scheduler", "b", 10)
    store.unlock("scheduler", "b")
    assert not store.lock("scheduler", "b", 10)
    store.unlock("scheduler", "a")
    assert store.lock("scheduler", "b", 10)
    clock.now += 11
    assert store.lock("scheduler", "a", 10)


def test_facts_are_set_once(store: Store) -> None:
    assert store.fact("fingerprint") is None
    assert store.set_fact("fingerprint", "abc") == "abc"
    assert store.set_fact("fingerprint", "def") == "abc"
    assert store.fact("fingerprint") == "abc"


def test_everything_is_there_after_reopening(store: Store, store_url: str, clock: Clock) -> None:
    study, attempt, trials = driven(store)
    store.start_pack(study, attempt, "p1", trials)
    store.report(study, report(attempt, trials[0], range(300)))
    again = Store(store_url, clock=clock)
    assert again.study(study) == store.study(study)
    assert again.trials(study) == store.trials(study)
    assert again.curves(study) == store.curves(study)
    again.ready()
    again.close()


def test_writers_of_one_study_take_their_turn(store: Store) -> None:
    study, attempt, trials = driven(store, 4)
    store.start_pack(study, attempt, "p1", trials)
    start = store.study(study).version
    failures: list[BaseException] = []

    def write(trial: str) -> None:
        try:
            for last in range(10):
                store.report(study, report(attempt, trial, range(last, last + 1)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(trial,)) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {len(columns["round"]) for columns in store.curves(study).values()} == {10}
    assert store.study(study).version == start + 40
    ids = [event.id for event in store.events(study)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("wrong", [{"number": 2**70}, {"seed": 2**70}, {"setting": 2**70, "phase": "front"}])
def test_what_a_database_cannot_hold_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    study, attempt, _ = driven(store, 0)
    new = NewTrial.model_validate(new_trials("fedavg", 1)[0].model_dump() | wrong)
    with pytest.raises(InvalidSpec, match="must be one that the database can hold"):
        store.create_trials(study, attempt, [new])
    assert store.trials(study) == []


def test_text_of_any_kind(store: Store) -> None:
    study, attempt, (trial, _) = driven(store)
    text = "line 1\nline 2: \u00e9 \U0001f600 'quoted' \\ %s"
    store.finish(study, attempt, [TrialResult(trial=trial, state="FAILED", error=text)])
    assert store.trial(study, trial).error == text
