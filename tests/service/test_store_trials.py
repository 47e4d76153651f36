"""Trials and their curves in the store; every test runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from driftline.errors import Conflict, NotFound, StaleDriver
from driftline.wire.curve_codec import HEAD, encode
from driftline.wire.driver_messages import NewTrial, Report, TrialResult
from driftline.wire.ids import holder
from driftline.wire.records import Values
from service.store import progress, trial_rows
from service.store.schema import CURVE_SEGMENTS
from service.store.store import Store

from .conftest import new_trials
from .store_setup import complete, driven, packed, report


def test_trials_are_created_once(store: Store) -> None:
    study, attempt, _ = driven(store, 0)
    asked = [
        new.model_copy(update={"label": label, "phase": phase, "seed": seed, "hyperparameters": {"client_lr": rate}})
        for label, phase, number, seed, rate in (
            ("fedprox", "search", 1, 0, 0.1),
            ("fedavg", "confirmation", 0, 1, 1e-3),
            ("fedavg", "search", 10, 0, 0.5),
            ("fedavg", "search", 2, 0, 1 / 3),
        )
        for new in new_trials(label, 1, number)
    ]
    made = store.trials.create(study, attempt, asked)
    version = store.studies.get(study).version
    assert [(trial.label, trial.phase, trial.number) for trial in made] == [
        (new.label, new.phase, new.number) for new in asked
    ]
    assert made[0].id == f"{study}.fedprox.s00001"
    assert made[3].hyperparameters == {"client_lr": 1 / 3}
    assert store.trials.create(study, attempt, asked[::-1]) == made[::-1]
    assert store.studies.get(study).version == version
    # label, search before front, number
    assert [trial.id for trial in store.trials.find(study)] == [made[3].id, made[2].id, made[1].id, made[0].id]
    with pytest.raises(Conflict, match="exists with another seed; take the next number"):
        store.trials.create(study, attempt, [*new_trials("fedavg", 1, 7), asked[3].model_copy(update={"seed": 5})])
    assert len(store.trials.find(study)) == 4  # nothing of a refused request is stored


def test_trials_by_label_phase_state_and_in_pages(store: Store) -> None:
    study, attempt, trials = driven(store, 3)
    store.trials.create(study, attempt, new_trials("fedprox", 2))
    front = NewTrial(label="fedavg", phase="confirmation", number=0, seed=1, configuration=0, hyperparameters={})
    (front_id,) = (trial.id for trial in store.trials.create(study, attempt, [front]))
    store.trials.start_pack(study, attempt, "p1", trials[:1])
    assert len(store.trials.find(study, label="fedprox")) == 2
    assert [trial.id for trial in store.trials.find(study, phase="confirmation")] == [front_id]
    assert [trial.id for trial in store.trials.find(study, state="RUNNING")] == trials[:1]
    everything = store.trials.find(study)
    assert len(everything) == 6
    walked = []
    after = None
    while page := store.trials.find(study, after=after, limit=2):
        walked += page
        after = (page[-1].label, page[-1].phase, page[-1].number)
    assert walked == everything
    assert store.trials.get(study, front_id).configuration == 0
    with pytest.raises(NotFound, match='has no trial "x"'):
        store.trials.get(study, "x")


def test_packs_start_trials_once(store: Store) -> None:
    study, attempt, trials = driven(store, 3)
    started = store.trials.start_pack(study, attempt, "p1", trials[1::-1])
    assert [(trial.id, trial.state, trial.attempt, trial.pack) for trial in started] == [
        (trials[1], "RUNNING", 1, "p1"),
        (trials[0], "RUNNING", 1, "p1"),
    ]
    version = store.studies.get(study).version
    assert store.trials.start_pack(study, attempt, "p1", trials[1::-1]) == started
    assert store.studies.get(study).version == version
    with pytest.raises(Conflict, match="runs in pack p1; hand it back"):
        store.trials.start_pack(study, attempt, "p2", [trials[2], trials[0]])
    assert store.trials.get(study, trials[2]).state == "WAITING"
    store.trials.finish(study, attempt, [TrialResult(trial=trials[0], state="WAITING")])
    assert store.trials.start_pack(study, attempt, "p2", trials[:1])[0].attempt == 2
    store.trials.finish(study, attempt, [complete(trials[0])])
    with pytest.raises(Conflict, match="a finished trial is final"):
        store.trials.start_pack(study, attempt, "p3", trials[:1])
    with pytest.raises(NotFound):
        store.trials.start_pack(study, attempt, "p3", [f"{study}.fedavg.s99999"])


def test_a_finished_trial_is_final(store: Store) -> None:
    study, attempt, trials = driven(store, 4)
    results = [
        complete(trials[0], 0.9),
        TrialResult(trial=trials[1], state="DIVERGED"),
        TrialResult(trial=trials[2], state="FAILED", error="out of memory"),
    ]
    version = store.trials.finish(study, attempt, results)
    assert store.trials.finish(study, attempt, results) == version
    for different in (
        complete(trials[0], 0.8),
        TrialResult(trial=trials[0], state="DIVERGED"),
        TrialResult(trial=trials[0], state="WAITING"),
        complete(trials[1]),
        TrialResult(trial=trials[2], state="FAILED", error="another"),
    ):
        with pytest.raises(Conflict, match="final"):
            store.trials.finish(study, attempt, [complete(trials[3]), different])
    assert [trial.state for trial in store.trials.find(study)] == ["COMPLETE", "DIVERGED", "FAILED", "WAITING"]
    first, _, third, _ = store.trials.find(study)
    assert first.values == Values(quality=0.9, speed=0.25)
    assert third.error == "out of memory"
    assert first.finished


def test_progress_counts_trials_and_rounds_for_readers_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study, attempt, trials = driven(store, 3)
    with monkeypatch.context() as writing:
        writing.setattr(progress, "of", None)  # writes that counted would cost more in larger studies
        store.trials.start_pack(study, attempt, "p1", trials[:2])
        store.curves.report(study, report(attempt, trials[0], range(6)))
        store.trials.finish(study, attempt, [TrialResult(trial=trials[0], state="DIVERGED")])
    record = store.studies.get(study)
    (told,) = (event.data for event in store.events.read(study) if event.kind == "progress")
    labels = {label: counts.model_dump(mode="json") for label, counts in record.progress.items()}
    assert told == {"version": record.version, "progress": labels}
    fedavg = record.progress["fedavg"]
    assert fedavg.search == {"DIVERGED": 1, "RUNNING": 1, "WAITING": 1}
    assert fedavg.rounds_done == 5 + 5  # both trials of the pack
    assert fedavg.rounds_total == 5 + 5 * 10  # the diverged one is shorter; five are still to be finished
    assert record.progress["fedprox"].rounds_total == 60


# ---- curves


def test_curves_over_several_segments(store: Store) -> None:
    study, attempt, (trial, other) = packed(store, running=1)
    store.curves.report(study, report(attempt, trial, range(200)))
    store.curves.report(study, report(attempt, trial, range(150, 700)))
    columns = store.curves.columns(study)[trial]
    assert columns["round"] == list(range(700))
    assert columns["train_loss"] == [1.0 / (1 + number) for number in range(700)]
    arrays = store.curves.arrays(study, trials=[other, trial])
    assert list(arrays) == [other, trial]
    assert arrays[other] == {}
    assert {name: values.tolist() for name, values in arrays[trial].items()} == columns
    with pytest.raises(NotFound):
        store.curves.arrays(study, trials=[trial, "x"])


def test_a_curve_is_stored_as_it_came_until_something_is_sent_again(store: Store) -> None:
    study, attempt, (trial, _) = packed(store, running=1)

    def stored() -> list[tuple[int, bytes]]:
        with store.session.read() as connection:
            return [(row.rounds, bytes(row.payload)) for row in connection.execute(sa.select(CURVE_SEGMENTS))]

    first, second = (report(attempt, trial, rounds) for rounds in (range(3), range(3, 5)))
    for body in (first, second, first, second):
        store.curves.report(study, body)
    assert stored() == [(5, first.reports[trial][0] + second.reports[trial][0])]
    store.trials.finish(study, attempt, [TrialResult(trial=trial, state="WAITING")])
    store.curves.report(study, second)  # sent again, as its answer was lost
    assert stored() == [(5, report(attempt, trial, range(5)).reports[trial][0][HEAD.size :])]
    store.trials.start_pack(study, attempt, "p2", [trial])
    store.curves.report(study, report(attempt, trial, range(5, 6), pack="p2"))
    whole = report(attempt, trial, range(6)).reports[trial][0]
    assert stored() == [(6, whole)]
    store.trials.finish(study, attempt, [complete(trial)])
    assert stored() == [(6, whole[HEAD.size :])]


def test_a_report_moves_all_trials_of_its_pack(store: Store) -> None:
    study, attempt, trials = packed(store, 3, running=2)
    store.curves.report(study, report(attempt, trials[0], range(8), checkpoint="file:///c7", plan={"oracle": "loop"}))
    first, second, third = store.trials.find(study)
    assert (first.rounds_done, first.checkpoint, first.plan) == (7, "file:///c7", {"oracle": "loop"})
    assert (second.rounds_done, second.checkpoint, second.plan) == (7, "file:///c7", {"oracle": "loop"})
    assert (third.rounds_done, third.checkpoint, third.plan) == (0, None, None)
    store.curves.report(study, report(attempt, trials[0], range(8, 10)))
    assert [trial.rounds_done for trial in store.trials.find(study)] == [9, 9, 0]
    assert store.trials.get(study, trials[0]).checkpoint == "file:///c7"  # None leaves the old one


def test_a_late_report_may_say_nothing_new(store: Store) -> None:
    study, attempt, (trial, other) = packed(store)
    version = store.curves.report(study, report(attempt, trial, range(5)))
    version = store.trials.finish(study, attempt, [complete(trial)])
    assert store.curves.report(study, report(attempt, trial, range(5)).model_copy(update={"rounds_done": 4})) == version
    with pytest.raises(Conflict, match="is COMPLETE and runs nowhere, got a new report of pack p1"):
        store.curves.report(study, report(attempt, trial, range(6)))
    store.trials.finish(study, attempt, [TrialResult(trial=other, state="WAITING")])
    store.trials.start_pack(study, attempt, "p2", [other])
    with pytest.raises(Conflict, match="runs in pack p2"):
        store.curves.report(study, report(attempt, other, range(3)))
    assert store.curves.columns(study, [other]) == {other: {"round": []}}


def test_a_report_that_would_leave_a_gap_stores_nothing_and_ends_its_driver(store: Store) -> None:
    study, attempt, (trial, _) = packed(store)
    store.curves.report(study, report(attempt, trial, range(300)))
    version = store.curves.report(study, report(attempt, trial, range(300, 520))).version
    with pytest.raises(StaleDriver, match="got rounds from 521 after round 519: a backup was restored"):
        store.curves.report(study, report(attempt, trial, range(521, 530)))
    assert store.curves.columns(study)[trial]["round"] == list(range(520))
    assert (store.trials.get(study, trial).rounds_done, store.studies.get(study).version) == (519, version)
    again = store.leases.acquire(study, holder()).attempt
    store.trials.start_pack(study, again, "p2", [trial])
    store.curves.report(study, report(again, trial, range(40), pack="p2"))  # from the beginning
    store.curves.report(study, report(again, trial, range(40, 90), pack="p2"))
    store.curves.report(study, report(again, trial, range(400, 520), pack="p2"))  # from a checkpoint
    store.curves.report(study, report(again, trial, range(520, 530), pack="p2"))
    assert store.curves.columns(study)[trial]["round"] == list(range(530))


def test_a_trial_ends_only_with_all_rounds_that_its_driver_has_reported(store: Store) -> None:
    study, attempt, (trial, other) = packed(store, running=1)
    store.curves.report(study, report(attempt, trial, range(30)))  # rounds 30 to 49 came after the backup
    end = complete(trial).model_copy(update={"rounds_done": 49})
    version = store.studies.get(study).version
    with pytest.raises(StaleDriver, match="got COMPLETE after round 49, but round 29 is the last one stored: a backup"):
        store.trials.finish(study, attempt, [end])
    with pytest.raises(
        StaleDriver, match="got DIVERGED after round 3, but round 0 is"
    ):  # the backup is from before it ran
        store.trials.finish(study, attempt, [TrialResult(trial=other, state="DIVERGED", rounds_done=3)])
    assert [each.state for each in store.trials.find(study)] == ["RUNNING", "WAITING"]
    assert store.studies.get(study).version == version
    again = store.leases.acquire(study, holder()).attempt
    store.trials.start_pack(study, again, "p2", [trial])
    store.curves.report(study, report(again, trial, range(30, 50), pack="p2"))
    store.trials.finish(study, again, [end])
    assert store.trials.finish(study, again, [end]).version == store.studies.get(study).version  # a repeat
    assert store.trials.get(study, trial).state == "COMPLETE"
    assert store.curves.columns(study)[trial]["round"] == list(range(50))


def test_a_report_of_progress_without_rounds_is_refused(store: Store) -> None:
    """A pack that stops reports its checkpoint only: from there on, the next one would leave a gap."""
    study, attempt, (trial, _) = packed(store, running=1)
    with pytest.raises(StaleDriver, match="must report every round, got rounds from 1 after round 0"):
        store.curves.report(study, report(attempt, trial, range(1, 9)))
    store.curves.report(study, report(attempt, trial, range(30)))
    stop = Report(attempt=attempt, pack="p1", rounds_done=49, checkpoint="file:///c49")
    with pytest.raises(StaleDriver, match="got round 49 without curves after round 29: a backup was restored"):
        store.curves.report(study, stop)
    assert (store.trials.get(study, trial).rounds_done, store.trials.get(study, trial).checkpoint) == (29, None)
    store.curves.report(study, stop.model_copy(update={"rounds_done": 29}))
    assert store.trials.get(study, trial).checkpoint == "file:///c49"


def test_a_program_may_leave_out_rounds_but_none_that_its_driver_has_reported(store: Store) -> None:
    study, attempt, (trial, _) = packed(store, running=1)

    def sparse(rounds: list[int], after: int) -> Report:
        columns = encode({"round": rounds, "loss": [1.0] * len(rounds)})
        return Report(attempt=attempt, pack="p1", reports={trial: columns}, rounds_done=rounds[-1], after=after)

    store.curves.report(study, sparse([5, 250, 600], 0))
    store.curves.report(study, sparse([700, 900], 600))
    with pytest.raises(StaleDriver, match="got rounds from 1000 after round 900: a backup was restored"):
        store.curves.report(study, sparse([1000], 901))
    store.curves.report(study, sparse([5, 10], 0))  # from the beginning
    store.curves.report(study, sparse([950], 10))
    assert store.curves.columns(study)[trial]["round"] == [5, 10, 250, 600, 700, 900, 950]


def test_a_report_about_an_unknown_trial_stores_nothing(store: Store) -> None:
    study, attempt, (trial, _) = packed(store, running=1)
    columns = encode({"round": [0], "train_loss": [1.0]})
    with pytest.raises(NotFound):
        store.curves.report(
            study, Report(attempt=attempt, pack="p1", reports={trial: columns, "x": columns}, rounds_done=0)
        )
    assert store.curves.columns(study) == {}


def test_finishing_more_trials_takes_no_more_statements(store: Store) -> None:
    counts = []
    for number in (2, 40):
        study, attempt, trials = packed(store, number)
        sent: list[str] = []
        with counted(store, sent):
            store.trials.finish(study, attempt, [complete(trial) for trial in trials])
        assert {trial.state for trial in store.trials.find(study)} == {"COMPLETE"}
        counts.append(len(sent))
    assert counts[0] == counts[1]


@contextmanager
def counted(store: Store, sent: list[str]) -> Iterator[None]:
    """Notes the statements that the store sends."""

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    engine = store.session.database._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_one_trial_may_end_twice_in_one_request_when_it_ends_the_same(store: Store) -> None:
    study, attempt, trials = packed(store, 1)
    with pytest.raises(Conflict, match="final"):
        store.trials.finish(study, attempt, [complete(trials[0], 0.9), complete(trials[0], 0.8)])
    assert store.trials.get(study, trials[0]).state == "RUNNING"
    store.trials.finish(study, attempt, [complete(trials[0], 0.9)] * 2)
    assert store.trials.get(study, trials[0]).state == "COMPLETE"


def test_sqlite_finds_trials_by_their_ids_without_reading_the_study(sqlite_store: Store) -> None:
    study, _, trials = driven(sqlite_store, 3)
    plans: list[str] = []

    def explained(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT trials."):
            plan = connection.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in plan)

    with sqlite_store.session.read() as connection:
        event.listen(connection, "before_cursor_execute", explained)
        assert [row.id for row in trial_rows.by_id(connection, study, trials)] == trials
    assert plans == ["SEARCH trials USING INDEX sqlite_autoindex_trials_1 (id=?)"]
