"""All studies of a service."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from requests.utils import get_environ_proxies

from driftline.errors import InvalidSpec
from service import pauses
from service.recorder.all_studies import StudiesRecorder
from service.recorder.study_recorder import Recorder
from service.store.store import Store
from tests import mlflow_warnings

from .test_study_recorder import Stored, connect, ended, shown, trials

pytestmark = mlflow_warnings.IGNORED


@pytest.mark.usefixtures("one_file")
def test_all_studies_are_recorded_and_finished_ones_left_alone(
    store: Store, uri: str, client: Any, tmp_path: Path
) -> None:
    studies = [Stored(store, ["fedavg"], 20, name) for name in ("one", "two")]
    for study in studies:
        study.add(trials("fedavg", 1))
    studies[0].succeed()
    connections = []

    def counted(where: str) -> Any:
        connections.append(where)
        return connect(where)

    recorder = StudiesRecorder(store, uri, str(tmp_path / "artifacts"), client=counted)
    assert recorder.sync()
    assert not recorder.sync()
    assert len(connections) == 2
    names = {
        f"{name} {study.id[-6:]}{end}"
        for name, study in zip(("one", "two"), studies, strict=True)
        for end in ("", " trials")
    }
    assert set(shown(client)) == names

    again = StudiesRecorder(store, uri, str(tmp_path / "artifacts"), client=counted)
    again.sync()
    assert len(connections) == 4  # one to ask whether the finished one is still there, one for the other
    studies[1].succeed()
    assert again.sync()
    assert not StudiesRecorder(store, uri, client=counted).sync()
    assert len(connections) == 5  # one to ask for both


@pytest.mark.usefixtures("one_file")
def test_a_look_at_recorded_studies_reads_no_study_and_counts_no_trials(store: Store, uri: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        ended(store, name)
    recorder = StudiesRecorder(store, uri, str(tmp_path / "artifacts"))
    assert recorder.sync()
    assert not recorder.sync()
    sent: list[str] = []
    sqlalchemy.event.listen(
        store.session.database._engine, "before_cursor_execute", lambda *given: sent.append(given[2])
    )
    assert not recorder.sync()
    assert recorder.complete
    studies, deletions = (statement for statement in sent if statement.startswith("SELECT"))
    assert "FROM studies" in studies
    assert "spec" not in studies
    assert "FROM deletions" in deletions


@pytest.mark.usefixtures("one_file")
def test_finished_studies_are_recorded_again_in_a_new_mlflow(
    store: Store, uri: str, tmp_path: Path, migrated: Path
) -> None:
    ended(store)
    assert StudiesRecorder(store, uri, str(tmp_path / "artifacts")).sync()
    before = shown(connect(uri))

    lost = f"sqlite:///{tmp_path / 'another.db'}"
    shutil.copy(migrated, tmp_path / "another.db")
    away = StudiesRecorder(store, lost, client=lambda _: None)  # no client at all: it cannot be asked
    assert not away.sync()
    assert "NoneType" in away.failed[0]
    recorder = StudiesRecorder(store, lost, str(tmp_path / "artifacts"))
    assert recorder.sync()
    assert shown(connect(lost)).keys() == before.keys()
    assert {len(runs) for _, runs in shown(connect(lost)).values()} == {len(runs) for _, runs in before.values()}
    assert not recorder.sync()
    assert not StudiesRecorder(store, lost).sync()


def test_a_study_that_cannot_be_recorded_delays_no_other(
    store: Store, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "FIRST_S", pauses.LONGEST_S)  # not over before the other study is recorded
    broken, sound = (Stored(store, ["fedavg"], 20, name) for name in ("broken", "sound"))
    sync, tries = Recorder.sync, []

    def failing(recorder: Recorder) -> bool:
        if recorder._study_id == broken.id:
            tries.append(1)
            raise ValueError("no such number")
        return sync(recorder)

    monkeypatch.setattr(Recorder, "sync", failing)
    recorder = StudiesRecorder(store, uri, str(tmp_path / "artifacts"))
    assert recorder.sync()
    assert recorder.failed == [f"study {broken.id}: no such number"]
    sound.add(trials("fedavg", 1))
    assert recorder.sync()
    assert (recorder.failed, recorder.complete, tries) == ([], False, [1])  # it is in a pause


def test_mlflow_on_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("no_proxy", "")
    for _ in range(2):
        connect("http://127.0.0.1:5000")
    assert get_environ_proxies("http://127.0.0.1:5000") == {}
    assert get_environ_proxies("http://mlflow.example.com")
    assert os.environ["no_proxy"] == "example.org,127.0.0.1"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent")
    with pytest.raises(InvalidSpec, match=r"^REQUESTS_CA_BUNDLE: must name certificates"):
        connect("https://mlflow.example.com")


@pytest.mark.usefixtures("one_file")
def test_an_artifact_store_that_is_away_holds_up_nothing_else(
    store: Store, uri: str, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        ended(store, name)
    place = tmp_path / "artifacts"
    place.write_text("a file where a folder should be")
    recorder = StudiesRecorder(store, uri, str(place))
    for _ in range(3):
        recorder.sync()
    assert (recorder.complete, recorder.failed) == (False, [])
    shows = {name: there for name, there in shown(client).items() if not name.endswith("trials") and name != "Default"}
    assert len(shows) == 2
    for tags, runs in shows.values():
        assert "Frontier page" in tags["mlflow.note.content"]
        assert {run[0][1] for run in runs.values()} == {"FINISHED"}
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"the artifact store {place} cannot be written to" in said

    place.unlink()
    following = StudiesRecorder(store, uri, str(place))
    following.sync()
    assert following.complete
    assert len(list(place.rglob("frontier.json"))) == 2
    assert not following.sync()
