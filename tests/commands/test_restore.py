"""A running service's database, backed up under a study and restored: every curve is complete and has the same bits."""

import functools
import json
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from driftline.study.trial_document import trial_document
from driftline.wire.records import TrialRecord
from service.driver.ray.worker import columns
from tests.clients import EveryClient
from tests.commands.processes import SMALL, begun, running
from tests.service.conftest import Postgresql, postgresql
from tests.uninterrupted import plain
from tests.waiting import until
from trainers import Pack, Plan, parse

__all__ = ["postgresql"]  # a fixture
LONG = {**SMALL, "budget": {"trials_per_method": 2, "rounds": 5000, "seeds": 0}}
"""Both trials run at once, for long enough not to have finished when the database is restored."""


class SqliteDatabase:
    """A database in a file."""

    def __init__(self, folder: Path) -> None:
        self._file, self._backup = folder / "service.db", folder / "backup.db"
        self.url = f"sqlite:///{self._file}"

    def back_up(self) -> None:
        with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(self._backup)) as copy:
            source.backup(copy)  # as `.backup` of sqlite3

    def restore(self) -> None:
        for end in ("", "-wal", "-shm"):
            Path(f"{self._file}{end}").unlink(missing_ok=True)
        shutil.copy(self._backup, self._file)


class PostgresqlDatabase:
    """A database on a server."""

    def __init__(self, folder: Path, server: Postgresql) -> None:
        self._dump, self._binaries = folder / "driftline.dump", server.binaries
        self.url = server.fresh()

    def back_up(self) -> None:
        command = [self._binaries / "pg_dump", "--format=custom", f"--file={self._dump}", self.url]
        subprocess.run(command, check=True, timeout=60)

    def restore(self) -> None:
        command = [self._binaries / "pg_restore", "--clean", "--if-exists", "--no-owner", f"--dbname={self.url}"]
        subprocess.run([*command, self._dump], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_study_goes_on_after_a_restore_and_has_the_curves_of_undisturbed_trials(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """With SQLite the driver ends with the service, with PostgreSQL it outlives the service, as on Kubernetes."""
    outlives = kind == "postgresql"
    database = PostgresqlDatabase(tmp_path, request.getfixturevalue(kind)) if outlives else SqliteDatabase(tmp_path)
    home = tmp_path / "home"
    with begun(home, LONG, DRIFTLINE_DATABASE_URL=database.url) as (processes, port, client, study):
        (service,) = processes.started
        client.pause(study)  # with checkpoints
        until(lambda: client.study(study).state == "PAUSED", 300)
        client.resume(study)
        further(client, study)
        database.back_up()
        known = client.trials(study)
        further(client, study)
        service.send_signal(signal.SIGKILL if outlives else signal.SIGTERM)
        service.wait(120)
        assert bool(running(home, f"--study={study}")) is outlives
        assert any(trial.checkpoint and Path(trial.checkpoint).exists() for trial in known)
        database.restore()
        processes.start("--port", str(port))
        until(lambda: processes.ready(port), 300)
        until(lambda: client.study(study).finished, 400)
        record, trials = client.study(study), client.trials(study)
        assert (record.state, {trial.state for trial in trials}) == ("SUCCEEDED", {"COMPLETE"}), record.reason
        assert [trial.id for trial in trials] == [trial.id for trial in known]
        curves = client.curves(study)
        for trial in trials:
            assert plain(curves[trial.id]) == undisturbed(record.study, trial), trial


def further(client: EveryClient, study: str) -> None:
    """Returns when the study has trained more rounds."""

    def rounds() -> int:
        return sum(trial.rounds_done for trial in client.trials(study))

    before = rounds()
    until(lambda: rounds() > before, 300)


def undisturbed(study: Any, trial: TrialRecord) -> dict[str, Any]:
    """The curve of a trial, trained in this process in one go."""
    document = trial_document(study, trial.label, [trial.hyperparameters], trial.seed, phase=trial.phase)
    return trained(json.dumps(document, sort_keys=True), json.dumps(trial.plan, sort_keys=True))


@functools.cache  # both kinds of database have the same trials
def trained(document: str, plan: str) -> dict[str, Any]:
    pack = Pack.from_spec(parse(json.loads(document)), plan=Plan.from_json(json.loads(plan)))
    return plain(columns(pack.advance(), 1)[0])
