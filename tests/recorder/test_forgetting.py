"""Deleted studies in MLflow: their experiments move to the trash, also after an outage or a crash."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.recorder import all_studies
from service.recorder.all_studies import StudiesRecorder
from service.store.store import Store
from tests import mlflow_warnings
from tests.waiting import until

from .test_study_recorder import Crash, Cut, Stored, connect, ended, shown

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


@pytest.mark.parametrize("at", [1, 2])
def test_a_recorder_that_dies_while_it_forgets_leaves_the_rest_to_the_next_one(
    store: Store, uri: str, client: Any, tmp_path: Path, at: int
) -> None:
    """Here between the two experiments of a study, or before the store is told; elsewhere a scheduler dies."""
    study, kept = ended(store), ended(store)
    StudiesRecorder(store, uri, str(tmp_path / "artifacts")).sync()
    before = shown(client)
    delete(store, study)
    dying = Cut(connect(uri), at, dies=True)
    with pytest.raises(Crash):
        StudiesRecorder(store, uri, client=lambda _: dying).sync()
    assert StudiesRecorder(store, uri).sync()
    assert shown(client) == {name: before[name] for name in before if kept.id[-6:] in name}
    assert store.deletions.pending("mlflow", 9) == []
