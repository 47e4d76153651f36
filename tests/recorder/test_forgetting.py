"""Deleted studies in MLflow: their experiments move to the trash, also after an outage or a crash."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fsspec.implementations.local import LocalFileSystem

from driftline.wire.access import Quota
from service.driver import checkpoints
from service.launchers.local.launcher import LocalLauncher
from service.recorder import all_studies
from service.recorder.all_studies import StudiesRecorder
from service.scheduler.cleanup import SWEEP_S, Cleanup
from service.store.schema import METADATA
from service.store.session import Session
from service.store.store import Store
from tests import mlflow_warnings
from tests.waiting import until

from .test_study_recorder import Stored, connect, ended, shown, trials

pytestmark = [*mlflow_warnings.IGNORED, pytest.mark.usefixtures("one_file")]


def delete(store: Store, study: Stored) -> None:
    store.deletions.request(study.id)
    store.deletions.done(study.id, "files")
    while store.deletions.purge():
        pass


def test_a_deleted_study_goes_to_the_bin_and_others_stay(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    first, second = ended(store), ended(store)
    recorder = StudiesRecorder(store, uri, str(tmp_path / "artifacts"))
    recorder.sync()
    before = shown(client)
    delete(store, first)
    assert recorder.sync()
    after = shown(client)
    names = {f"digits {second.id[-6:]}", f"digits {second.id[-6:]} trials"}
    assert after == {name: before[name] for name in names}
    assert store.deletions.pending("mlflow", 9) == []
    assert not recorder.sync()
    experiment = client.get_experiment_by_name(f"digits {first.id[-6:]} trials")
    assert experiment.lifecycle_stage == "deleted"
    assert client.search_runs([experiment.experiment_id]) == []


def test_mlflow_being_away_loses_nothing(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = ended(store)
    StudiesRecorder(store, uri, str(tmp_path / "artifacts")).sync()
    delete(store, study)
    assert store.studies.find() == []

    def away(_: str) -> Any:
        raise ConnectionError("connection refused")

    cut_off = StudiesRecorder(store, uri, client=away)
    assert not cut_off.sync()
    assert cut_off.failed == [f"study {study.id}: connection refused"]
    assert shown(client)
    assert StudiesRecorder(store, uri).sync()
    assert shown(client) == {}
    assert store.deletions.pending("mlflow", 9) == []


def test_studies_that_cannot_be_forgotten_block_no_later_deletion(
    store: Store, uri: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = [ended(store, f"digits{number}") for number in range(3)]
    recorder = StudiesRecorder(store, uri)
    recorder.sync()
    for study in studies:
        delete(store, study)
    monkeypatch.setattr(all_studies, "_FORGET", 2)
    locked = {study.id for study in studies[:2]}
    forget = all_studies.forget

    def refuse(asks: Any, name: str, tags: dict[str, str]) -> None:
        if locked & set(tags.values()):
            raise PermissionError(name)
        forget(asks, name, tags)

    monkeypatch.setattr(all_studies, "forget", refuse)
    assert not recorder.sync()
    assert len(recorder.failed) == 2
    assert recorder.sync()
    assert {deletion.study_id for deletion in store.deletions.pending("mlflow", 9)} == locked
    assert not recorder.sync()  # the next round, in which they are in a pause
    assert recorder.failed == []
    locked.clear()
    until(lambda: recorder.sync() or not store.deletions.pending("mlflow", 9))
    assert shown(client) == {}


@pytest.mark.parametrize("call", ["create_experiment", "create_run", "log_batch", "set_terminated"])
def test_what_was_half_written_is_forgotten(
    store: Store, uri: str, client: Any, tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder died after its first request to MLflow, before it told the store."""
    study = ended(store)

    def dying(where: str) -> Any:
        made = connect(where)
        method = getattr(made, call)

        def once(*arguments: Any, **options: Any) -> Any:
            method(*arguments, **options)
            raise ConnectionError("power cut")

        monkeypatch.setattr(made, call, once)
        return made

    cut_off = StudiesRecorder(store, uri, str(tmp_path / "artifacts"), client=dying)
    cut_off.sync()
    assert cut_off.failed == [f"study {study.id}: power cut"]
    assert shown(client)
    delete(store, study)
    StudiesRecorder(store, uri).sync()
    assert shown(client) == {}


def test_a_study_that_is_deleted_while_it_is_recorded(
    store: Store, uri: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, other = ended(store), ended(store)
    glances = store.studies.glances

    def then_deleted() -> Any:
        found = glances()
        if len(found) == 2:
            delete(store, study)
        return found

    monkeypatch.setattr(store.studies, "glances", then_deleted)
    recorder = StudiesRecorder(store, uri, str(tmp_path / "artifacts"))
    assert recorder.sync()
    assert {name[:13] for name in shown(client)} == {f"digits {other.id[-6:]}"}


def test_another_recorder_of_the_study_is_waited_for(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = ended(store)
    StudiesRecorder(store, uri, str(tmp_path / "artifacts")).sync()
    delete(store, study)
    store.locks.release(f"recorder/{study.id}", StudiesRecorder(store, uri)._holder)
    assert store.locks.take(f"recorder/{study.id}", "another/1", 60.0)
    assert not StudiesRecorder(store, uri).sync()
    assert shown(client)
    store.locks.release(f"recorder/{study.id}", "another/1")
    assert StudiesRecorder(store, uri).sync()
    assert shown(client) == {}


@pytest.mark.slow
def test_the_bin_is_emptied_with_artifacts_as_the_page_says(
    store: Store, uri: str, client: Any, tmp_path: Path
) -> None:
    from mlflow.entities import ViewType

    study, kept = ended(store), ended(store)
    StudiesRecorder(store, uri, str(tmp_path / "artifacts")).sync()
    before = shown(client)
    delete(store, study)
    StudiesRecorder(store, uri).sync()
    assert len(list((tmp_path / "artifacts").rglob("frontier.json"))) == 2
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    (command,) = [line.strip() for line in page.splitlines() if line.startswith("    mlflow gc ")]
    done = subprocess.run([sys.executable, "-m", *command.replace("$uri", uri).split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "artifacts").rglob("frontier.json"))) == 1
    assert {experiment.name for experiment in client.search_experiments(ViewType.ALL)} == {"Default", *shown(client)}
    assert shown(client) == {name: before[name] for name in before if kept.id[-6:] in name}


def test_an_experiment_of_somebody_else_is_left_alone(store: Store, uri: str, client: Any, tmp_path: Path) -> None:
    study = ended(store)
    StudiesRecorder(store, uri, str(tmp_path / "artifacts")).sync()
    name = f"digits {study.id[-6:]}"
    client.set_experiment_tag(client.get_experiment_by_name(name).experiment_id, "driftline.study", "another")
    delete(store, study)
    StudiesRecorder(store, uri).sync()
    assert set(shown(client)) == {name}


class Killed(BaseException):
    """Stands for SIGKILL: the process does nothing more."""


class KillSwitch:
    """Kills before the given step: a commit, a file that is removed, or a request to MLflow."""

    def __init__(self) -> None:
        self.left: float = float("inf")
        # Local studies that the process keeps open for other tests go on meanwhile.
        self._others = set(threading.enumerate()) - {threading.current_thread()}

    def step(self) -> None:
        if threading.current_thread() in self._others:
            return
        self.left -= 1
        if self.left <= 0:  # and so is every later step
            raise Killed

    def around(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def cut(*arguments: Any, **options: Any) -> Any:
            self.step()
            return do(*arguments, **options)

        return cut


class Remover:
    """What removes studies, over one database and folder; a new one is a service that was started again."""

    def __init__(self, store: Store, uri: str, folder: Path) -> None:
        self.store, self._uri, self._folder, self._now = store, uri, folder, 0.0
        (folder / "logs").mkdir(exist_ok=True)
        launcher = LocalLauncher("http://127.0.0.1:1", str(folder / "checkpoints"), folder / "logs")
        self._cleanup = Cleanup(store, launcher, str(folder / "checkpoints"), Quota(), lambda: self._now)

    def study(self, *, cancelled: bool = False) -> Stored:
        """A new paused or cancelled study with files and runs."""
        study = Stored(self.store, ["fedavg"], 20)
        study.add(trials("fedavg", 1))
        self.store.studies.intend(study.id, "cancel" if cancelled else "pause")
        self.store.leases.release(study.id, study.attempt, "CANCELLED" if cancelled else "PAUSED")
        checkpoints.write(f"{self._folder}/checkpoints/{study.id}/pack.1", (1, 1), 5, b"5")
        checkpoints.write(f"{self._folder}/checkpoints/{study.id}/pack.2", (1, 1), 5, b"5")
        (self._folder / "logs" / f"{study.id}.log").touch()
        StudiesRecorder(self.store, self._uri, str(self._folder / "artifacts")).sync()
        return study

    def clean(self) -> None:
        """Look until nothing is left to remove."""
        while self.store.deletions.purge(rows=7):
            pass
        for _ in range(2):
            self._now += SWEEP_S
            self._cleanup.step()
            until(lambda: self._cleanup._removal is None or self._cleanup._removal.done())
        StudiesRecorder(self.store, self._uri).sync()

    def contents(self) -> dict[str, Any]:
        """Rows by table, and names of files and experiments."""
        with self.store.session.read() as connection:
            tables = [table for table in METADATA.tables.values() if table.name not in ("audit", "locks")]
            count = sa.select(sa.func.count())
            found = {table.name: connection.execute(count.select_from(table)).scalar_one() for table in tables}
        files = sorted(str(path) for name in ("checkpoints", "logs") for path in (self._folder / name).rglob("*"))
        experiments = {experiment.name for experiment in connect(self._uri).search_experiments()}
        return {**found, "files": files, "experiments": experiments}


@pytest.mark.slow
@pytest.mark.parametrize("expired", [False, True], ids=["requested", "expired"])
def test_a_deletion_that_is_killed_anywhere_is_completed_by_the_next_service(
    store: Store, uri: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    switch = KillSwitch()

    def begin(store: Store, study_id: str) -> None:
        if expired:
            store.deletions.expire(Quota(retention_days=1e-9), 9)
        else:
            store.deletions.request(study_id)

    write = Session.write

    @contextmanager
    def transaction(session: Session) -> Iterator[sa.Connection]:
        with write(session) as connection:
            yield connection
            switch.step()

    monkeypatch.setattr(Session, "write", transaction)
    for target, name in (
        (LocalFileSystem, "rm_file"),
        (LocalFileSystem, "rmdir"),
        (LocalLauncher, "forget"),
        (type(client), "delete_experiment"),
    ):
        monkeypatch.setattr(target, name, switch.around(getattr(target, name)))
    first = Remover(store, uri, tmp_path)
    first.study()
    kept = first.contents()
    for number in itertools.count(1):
        study = first.study(cancelled=expired)
        everything = first.contents()
        switch.left = number
        try:
            begin(store, study.id)
            Remover(store, uri, tmp_path).clean()
            killed = False
        except Killed:
            killed = True
        switch.left = float("inf")
        with closing(Store(store.session.database.url.render_as_string(hide_password=False))) as again:
            remover = Remover(again, uri, tmp_path)
            if study.id in {found.id for found in again.studies.find()}:
                assert remover.contents() == everything
                begin(again, study.id)
            remover.clean()
            assert remover.contents() == kept, number
        assert len(store.audit.find(action="study.expire" if expired else "study.delete")) == number
        if not killed:
            break
    assert number > 10
