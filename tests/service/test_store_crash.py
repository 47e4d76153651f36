"""A writer killed at any moment leaves whole transactions behind, and every one that it was told of."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.store.curve_segments import add
from service.store.store import Store

from .conftest import SPEC
from .store_setup import packed

WRITER = """
import sys
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Report, TrialResult
from driftline.wire.records import Values
from service.store.store import Store
from driftline.wire.ids import holder

store = Store(sys.argv[1])
study = sys.argv[2]
attempt = store.leases.acquire(study, holder()).attempt
number = len(store.trials.find(study))
database = store.session.database
for opened in (database.read, database.write):
    with opened() as connection:
        print("synchronous", connection.exec_driver_sql("PRAGMA synchronous").scalar(), flush=True)
while True:
    new = [
        NewTrial(label="fedavg", phase="search", number=n, seed=0, configuration=n, hyperparameters={})
        for n in (number, number + 1)
    ]
    trials = [trial.id for trial in store.trials.create(study, attempt, new)]
    pack = f"p{attempt}.{number}"
    store.trials.start_pack(study, attempt, pack, trials)
    for start in range(0, 300, 100):
        rounds = list(range(start, start + 100))
        columns = {"round": rounds, "train_loss": [float(value) for value in rounds]}
        reports = dict.fromkeys(trials, encode(columns))
        store.curves.report(study, Report(attempt=attempt, pack=pack, reports=reports, rounds_done=rounds[-1]))
        print("stored", trials[0], rounds[-1], flush=True)
    values = Values(quality=1, speed=1)
    store.trials.finish(study, attempt, [TrialResult(trial=trial, state="COMPLETE", values=values) for trial in trials])
    print("finished", trials[1], 299, flush=True)
    number += 2
"""


def test_kill_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "driftline.db"
    store = Store(path)
    study = store.studies.create(SPEC, "f" * 64).id
    pause = random.Random(7)
    told: list[list[str]] = []
    for number in range(2):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), study], stdout=subprocess.PIPE, text=True)
        for _ in range(2):  # FULL; in WAL mode, with 1 (NORMAL) a power cut takes the last transactions back
            assert writer.stdout.readline() == "synchronous 2\n"
        first = writer.stdout.readline() if number == 1 else ""  # the last one has certainly stored something
        time.sleep(pause.uniform(0.1, 0.4))
        writer.send_signal(signal.SIGKILL)
        lines = (first + writer.stdout.read()).splitlines()
        writer.wait()
        writer.stdout.close()
        told += [line.split() for line in lines if len(line.split()) == 3]
        _check(store, study)
        reopened = Store(path)
        _check(reopened, study)
        reopened.close()
    assert told, "the writers were killed before they stored anything"
    rounds = {trial: columns["round"][-1] for trial, columns in store.curves.columns(study).items()}
    states = {trial.id: trial.state for trial in store.trials.find(study)}
    for word, trial, last in told:
        assert (rounds[trial] or 0) >= int(last)
        if word == "finished":
            assert states[trial] == "COMPLETE"
    attempt = store.leases.acquire(study, holder()).attempt  # the dead writer's lease does not stand in the way
    assert attempt == 3
    assert "RUNNING" not in {trial.state for trial in store.trials.find(study)}
    store.close()


def _check(store: Store, study: str) -> None:
    """Transactions are whole: pairs of trials were written together."""
    trials = store.trials.find(study)
    curves = store.curves.columns(study)
    assert len(trials) % 2 == 0
    for first, second in zip(trials[::2], trials[1::2], strict=True):
        assert first.state == second.state
        assert first.rounds_done == second.rounds_done
        columns = curves.get(first.id, {"round": []})
        assert curves.get(second.id, {"round": []}) == columns
        assert columns["round"] == list(range(first.rounds_done + 1 if columns["round"] else 0))
        if first.state == "COMPLETE":
            assert first.rounds_done == 299
    progress = store.studies.get(study).progress
    assert sum(progress["fedavg"].search.values()) == len(trials)


def test_a_report_that_breaks_half_way_stores_nothing(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study, attempt, trials = packed(sqlite_store)
    before = (sqlite_store.studies.get(study), sqlite_store.trials.find(study), sqlite_store.events.read(study))
    columns = {"round": [0], "train_loss": [1.0]}
    body = Report(attempt=attempt, pack="p1", reports=dict.fromkeys(trials, encode(columns)), rounds_done=5)
    calls = []

    def fail_second(payload: bytes, block: bytes) -> bytes:
        calls.append(payload)
        if len(calls) == 2:
            raise MemoryError
        return add(payload, block)

    monkeypatch.setattr("service.store.curves.add", fail_second)
    with pytest.raises(MemoryError):
        sqlite_store.curves.report(study, body)
    assert sqlite_store.curves.columns(study) == {}
    assert (sqlite_store.studies.get(study), sqlite_store.trials.find(study), sqlite_store.events.read(study)) == before
    monkeypatch.undo()
    sqlite_store.curves.report(study, body)
    assert set(sqlite_store.curves.columns(study)) == set(trials)
