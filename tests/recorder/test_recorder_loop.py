"""The child process that records: it ends when nothing is new, and another one continues."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Unavailable
from service.recorder import study_recorder
from service.recorder.recorder_loop import RecorderLoop
from service.store.recorder_state import Recorded
from service.store.store import Store
from tests import mlflow_warnings
from tests.waiting import until

from .test_study_recorder import Stored, shown, trials

pytestmark = mlflow_warnings.IGNORED


@pytest.fixture
def recording(store: Store, uri: str, tmp_path: Path) -> Iterator[RecorderLoop]:
    loop = RecorderLoop(store, database(store), uri, str(tmp_path / "artifacts"), idle_seconds=0.5)
    yield loop
    loop.close()


def database(store: Store) -> str:
    return store.session.database.url.render_as_string(hide_password=False)


def synced(loop: RecorderLoop) -> Any:
    """The process that has brought MLflow up to date."""

    def complete() -> bool:
        loop.sync()
        return loop._shown is not None

    until(complete)
    return loop._process._running


def test_the_process_ends_when_nothing_is_new_the_next_trial_starts_another_and_a_killed_one_is_replaced(
    recording: RecorderLoop, store: Store, client: Any
) -> None:
    study = Stored(store, ["fedavg"], 20)
    study.add(trials("fedavg", 1))
    first = synced(recording)
    until(lambda: first.poll() is not None)
    assert first.returncode == 0
    recording.sync()
    assert recording._process._running is first  # nothing is new: nothing was started
    study.add(trials("fedavg", 1, first=1))
    second = synced(recording)
    second.kill()
    second.wait()
    study.succeed()
    assert len({first.pid, second.pid, synced(recording).pid}) == 3
    assert len(shown(client)[f"digits {study.id[-6:]} trials"][1]) == 2


def test_it_goes_on_while_mlflow_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(study_recorder, "EVERY_S", 0.01)
    monkeypatch.setattr(study_recorder, "LONGEST_WAIT_S", 0.02)
    Stored(store, ["fedavg"], 20)
    loop, stop = RecorderLoop(store, database(store), "http://127.0.0.1:1"), threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()
    try:
        until(lambda: caplog.text.count("not everything could be recorded") >= 3)
    finally:
        stop.set()
        thread.join()
        loop.close()
    assert "refused" in caplog.text


class Answers:
    """Stands in for the process."""

    def __init__(self, *lines: str) -> None:
        self.left = list(lines)

    def ask(self, line: str, seconds: float) -> str:
        return self.left.pop(0)


def test_the_process_is_asked_until_mlflow_shows_everything(store: Store) -> None:
    study = Stored(store, ["fedavg"], 20)
    loop = RecorderLoop(store, "", "")
    answers = loop._process = Answers('{"complete": false}', '{"problem": "no"}', "", '{"complete": true}')  # type: ignore[assignment]  # a stand-in
    loop.sync()
    for problem in ("no", "died"):
        with pytest.raises(Unavailable, match=problem):
            loop.sync()
    for _ in range(2):
        loop.sync()
        assert not answers.left
    answers.left = ['{"complete": true}', '{"complete": false}', '{"complete": false}']
    study.add(trials("fedavg", 1))
    loop.sync()
    study.succeed()
    store.recorder_state.write(study.id, Recorded("begun", "", ""))
    store.deletions.request(study.id)
    for _ in range(2):  # until nothing remains to be deleted
        loop.sync()
    store.deletions.done(study.id, "mlflow")
    answers.left = ['{"complete": true}']
    for _ in range(2):
        loop.sync()
        assert not answers.left
