"""Commands on an output folder: its log, a watch beside the process that works in it, another study for it."""

import contextlib
import errno
import json
import logging
import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from driftline import Client, Study
from driftline.errors import Conflict, InvalidSpec
from driftline.study import theory_spaces
from driftline.wire.budgets import Extension
from service.api.study_checks import check, extended
from service.cli.main import app
from service.embedded import folder as folder_module
from service.embedded import folder_results
from service.embedded.embedded_run import EmbeddedRun
from service.embedded.folder import CHECKPOINTS, DATABASE, LOCK, LOG, Folder, put_all
from service.embedded.folder_results import stored_log, stored_study
from service.embedded.local_studies import WatchedJob
from service.log_file import FORMAT, VisibleFormatter
from tests.command_line import printed
from tests.driver.store_client import quadratic
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a study was begun; no process works in it."""
    place = tmp_path / "my out"
    open_folder(place).close()
    return place


def open_folder(place: Path) -> Folder:
    """A folder that this process works in."""
    opened, study = Folder(place), quadratic()
    opened.claim(study)
    if not opened.store.studies.find():
        opened.store.studies.create(study.to_json(), study.fingerprint())
    return opened


def changed(**keys: Any) -> Study:
    document = quadratic().to_json()
    for key, value in keys.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    return Study.from_json(document)


def refusal(place: Path, study: Study) -> str:
    with contextlib.closing(Folder(place)) as opened, pytest.raises(InvalidSpec) as refused:
        opened.claim(study)
    return refused.value.message


def test_a_name_that_no_address_expresses_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="out: must have a name of valid UTF-8"):
        Folder(tmp_path / os.fsdecode(b"\xff"))
    assert list(tmp_path.iterdir()) == []


def test_a_larger_budget_is_refused_with_the_command_that_extends(folder: Path) -> None:
    budget = quadratic().budget
    trials, seeds = budget.trials_per_method, budget.seeds
    message = refusal(folder, changed(budget={"trials_per_method": trials + 4, "seeds": seeds + 1}))
    assert f"budget.trials_per_method is {trials} there, not {trials + 4}" in message
    assert f"driftline extend '{folder}' --trials {trials + 4} --seeds {seeds + 1}  or choose another" in message


def test_keys_that_differ_are_named_and_no_extension_is_offered(folder: Path) -> None:
    budget = quadratic().budget
    message = refusal(folder, changed(seed=7, budget={"trials_per_method": budget.trials_per_method + 4}))
    assert f"seed is {quadratic().seed} there, not 7" in message
    assert "budget.trials_per_method is" in message
    assert "extend" not in message
    message = refusal(folder, changed(budget={"trials_per_method": budget.trials_per_method - 1}))
    assert "extend" not in message
    document = quadratic().to_json()
    label = document["methods"][0]["label"]
    document["methods"][0]["space"]["local_steps"] = 77
    message = refusal(folder, Study.from_json(document))
    assert f"methods.{label}.space.local_steps is" in message
    document |= {"seed": 7, "batch_size": 3, "eval_every": 2, "clients_per_round": 2}
    message = refusal(folder, Study.from_json(document))
    assert message.count(" there, not ") == 3
    assert ", and 2 more: choose another folder" in message


def test_an_extended_study_may_be_run_by_its_file_with_either_budget(folder: Path) -> None:
    opened, study = open_folder(folder), quadratic()
    try:
        more = study.budget.trials_per_method + 4
        larger = Study.from_json(extended(study.to_json(), Extension(trials_per_method=more)))
        (record,) = opened.store.studies.find()
        opened.store.studies.extend(
            record.id, larger.to_json()["budget"], larger.fingerprint(), was=study.fingerprint()
        )
        opened.claim(study)
        opened.claim(larger)
    finally:
        opened.close()


def test_a_study_with_a_space_from_theory_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = changed(methods=[{"name": "fedavg", "space": "theory"}])
    with contextlib.closing(Folder(tmp_path / "out")) as opened:
        opened.claim(written)
        stored = opened.store.studies.create(check(written.to_json()).spec, "f" * 64)
        assert stored.spec["methods"][0]["theory"]["measured"]["smoothness"] > 0
        monkeypatch.setattr(theory_spaces.trainers, "estimate_curvature", lambda trial: pytest.fail("measured again"))
        opened.claim(written)
        opened.claim(stored.study)
        larger = Study.from_json({**written.to_json(), "budget": {**written.to_json()["budget"], "seeds": 9}})
        with pytest.raises(InvalidSpec, match=r"but budget\.seeds is \d there, not 9: extend it with"):
            opened.claim(larger)
        other = changed(methods=[{"name": "fedavg", "space": "theory", "start": [{"client_lr": 0.5}]}])
        with pytest.raises(InvalidSpec, match=r"but methods\.fedavg\.start is"):
            opened.claim(other)


def test_watching_an_interrupted_study_says_how_to_resume_it(folder: Path) -> None:
    watched = CliRunner().invoke(app, ["watch", str(folder)])
    assert watched.exit_code == 1
    assert f"The study is paused: resume it with  driftline resume '{folder}'" in watched.stderr


def test_watching_a_study_that_another_process_runs(folder: Path) -> None:
    with contextlib.closing(open_folder(folder)) as opened:
        (record,) = opened.store.studies.find()
        with pytest.raises(TimeoutError, match="still pending"):
            WatchedJob(folder).wait(timeout_s=0)
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (WatchedJob(folder).wait(), ended.set()))
        thread.start()
        opened.store.studies.intend(record.id, "cancel")
        assert ended.wait(60)
        thread.join()
        assert WatchedJob(folder).state == "CANCELLED"
        with pytest.raises(Conflict, match="another client of this process works in it"):  # the watch unlocked nothing
            Folder(folder)


def test_a_client_reads_a_study_that_another_process_runs(folder: Path) -> None:
    with contextlib.closing(open_folder(folder)), Client(out=folder.parent) as client:
        job = client.job(folder.name)
        assert [record.id for record in client.records()] == [job.id]
        assert (job.state, job.trials(), job.curves()) == ("PENDING", [], {})
        assert job.frontier().labels == tuple(job.record().study.labels)
        with pytest.raises(Conflict, match="must be free to change its study: wait until the process that runs it"):
            job.pause()


def test_each_change_of_a_watched_study_is_a_line_of_json(folder: Path) -> None:
    watched = CliRunner().invoke(app, ["watch", str(folder), "--json"])
    assert watched.exit_code == 1
    (record,) = map(json.loads, watched.stdout.splitlines())
    assert (record["name"], record["state"]) == (record["spec"]["name"], "PAUSED")


def test_logs_of_a_folder(folder: Path) -> None:
    (folder / LOG).write_text(
        "2026-01-02 03:04:05,678 INFO service: starting Ray\n"
        "2026-01-02 03:04:06,000 ERROR service.driver.lifecycle: the driver failed\n"
        "Traceback (most recent call last):\n"
    )
    assert [line[19:] for line in printed("logs", str(folder)).splitlines()] == [
        " INFO    starting Ray",
        " ERROR   the driver failed",
        " ERROR   Traceback (most recent call last):",
    ]
    rows = [json.loads(line) for line in printed("logs", str(folder), "--json").splitlines()]
    assert [(row["id"], row["level"]) for row in rows] == [(1, "info"), (2, "error"), (3, "error")]
    assert rows[1]["at"].endswith("06Z")
    with Client(out=folder.parent) as client:
        assert [line.id for line in client.job(folder.name).logs(after=2)] == [3]


def test_the_times_of_a_log_are_utc_wherever_it_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"created": 0.5, "msecs": 500.0, "levelname": "INFO", "name": "service", "msg": "starting Ray"}
    try:
        monkeypatch.setenv("TZ", "Pacific/Kiritimati")
        time.tzset()
        (folder / LOG).write_text(VisibleFormatter(FORMAT).format(logging.makeLogRecord(record)) + "\n")
        (line,) = stored_log(folder)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (line.at, line.text) == (datetime(1970, 1, 1, microsecond=500_000, tzinfo=UTC), "starting Ray")


def test_following_a_log_ends_with_the_process_that_writes_it(folder: Path) -> None:
    opened = open_folder(folder)
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend(line.text for line in WatchedJob(folder).logs(follow=True)))
    thread.start()
    try:
        with (folder / LOG).open("a") as log:
            log.write("2026-01-02 03:04:05,678 INFO service: starting Ray\n")
        until(lambda: lines == ["starting Ray"])
        assert thread.is_alive()
    finally:
        opened.close()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("hard", [False, True], ids=["link", "hard-link"])
@pytest.mark.parametrize("name", [LOCK, LOG, DATABASE, f"{DATABASE}-wal", "mlflow.db"])
def test_a_link_in_the_folder_empties_no_other_file(folder: Path, tmp_path: Path, name: str, hard: bool) -> None:
    keys = tmp_path / "authorized_keys"
    keys.write_text("two keys\n")
    (folder / name).unlink(missing_ok=True)
    (folder / name).hardlink_to(keys) if hard else (folder / name).symlink_to(keys)
    for study in (quadratic(), None):  # it is run, or resumed
        with pytest.raises(InvalidSpec, match=f"{name} .*link"):
            EmbeddedRun(folder, study)
    assert keys.read_text() == "two keys\n"


@pytest.mark.parametrize("place", [CHECKPOINTS, "mlartifacts", "mlartifacts/1", "program", "program.draft", "trials"])
def test_no_folder_inside_is_a_link(folder: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidSpec, match=f"{place} \\(is a link to .*: remove the link"):
        Folder(folder)


def test_drafts_of_killed_processes_are_removed_and_not_written_through(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "authorized_keys"
    keys.write_text("two keys\n")
    (folder / ".frontier.html.part").symlink_to(keys)
    with contextlib.closing(open_folder(folder)):
        put_all(folder, {"frontier.html": b"page"})
    assert sorted(path.name for path in folder.iterdir()) == [LOCK, DATABASE, "frontier.html"]
    assert keys.read_text() == "two keys\n"


def test_another_users_folder_is_refused_but_can_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def require_folder(path: Path) -> None:
        raise PermissionError(errno.EPERM, "belongs to user eve: work as that user", str(path))

    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(folder_module, "require_folder", require_folder)
    monkeypatch.setattr(folder_results, "require_folder", require_folder)
    with pytest.raises(InvalidSpec, match="belongs to user eve"):
        Folder(folder)
    assert stored_study(folder).study == quadratic()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
