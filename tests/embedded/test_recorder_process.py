"""The recorder of a folder, in its own process: it finishes, is killed, or ends with its parent."""

import os
import signal
from pathlib import Path

import pytest

from service.embedded.recorder_process import RecorderProcess
from service.store.store import Store

from ..recorder.stored import Stored
from ..results.samples import curve


@pytest.fixture
def study_id(tmp_path: Path) -> str:
    """A finished study in a folder."""
    store = Store(tmp_path / "driftline.db")
    study = Stored(store, ["fedavg"], 3)
    study.add([curve([0.1, 0.5, 0.7, 0.9], label="fedavg", number=number) for number in range(3)])
    study.succeed()
    store.close()
    return study.id


def recorded(folder: Path, study_id: str) -> set[str]:
    """Kinds of what the recorder has written."""
    store = Store(folder / "driftline.db")
    kinds = {entry.kind for entry in store.recorder_state.read(study_id)}
    store.close()
    return kinds


def test_after_a_kill_the_next_recorder_writes_everything(tmp_path: Path, study_id: str) -> None:
    killed = RecorderProcess(tmp_path, study_id)
    os.kill(killed._process.pid, signal.SIGKILL)
    assert not killed.finish()
    assert not killed.alive
    following = RecorderProcess(tmp_path, study_id)
    assert following.alive
    assert following.finish()
    assert {"frontier.json", "frontier.html", "frontier.png", "trials.csv", "mlflow.db"} <= set(os.listdir(tmp_path))
    assert {"trial", "study", "ended"} <= recorded(tmp_path, study_id)


def test_it_ends_with_its_parent_and_without_files(tmp_path: Path, study_id: str) -> None:
    recorder = RecorderProcess(tmp_path, study_id)
    recorder.close(120)  # as when the parent is killed: its end of the pipe is closed
    assert recorder._process.returncode == 0
    assert "frontier.json" not in os.listdir(tmp_path)
