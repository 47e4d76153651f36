"""What a training program imports: `driftline.trial`, with the files of a trial, and by hand."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftline import trial
from tests.conftest import TESTS
from tests.waiting import until


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The document of a trial of four rounds, which ends at a rung after the third."""
    (tmp_path / "checkpoints").mkdir()
    document: dict[str, Any] = {"hyperparameters": {"client_lr": 0.5, "algorithm": "avg"}}
    document |= {"seed": 3, "label": "fedavg", "rounds": 4, "first": 0, "last": 3, "resume": None, "gpus": 1}
    document |= {name: str(tmp_path / name) for name in ("reports", "control", "checkpoints")}
    (tmp_path / "trial.json").write_text(json.dumps(document))
    (tmp_path / "control").write_text(json.dumps({"until": 3, "checkpoint": 0}))
    monkeypatch.setenv("DRIFTLINE_TRIAL", str(tmp_path / "trial.json"))
    before = signal.getsignal(signal.SIGTERM)
    yield document
    signal.signal(signal.SIGTERM, before)
    trial._stopping.clear()


def reports(files: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(files["reports"]).read_text().splitlines()]


def test_it_loads_the_standard_library_alone_whatever_lies_beside_the_program(tmp_path: Path) -> None:
    for name in ("trainers", "service", "search_spaces"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported')")
    code = "import sys; from driftline import trial; print(sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert loaded - {"driftline", "__main__"} <= sys.stdlib_module_names


def test_it_has_the_values_of_the_study_and_defaults_for_the_rest(files: dict[str, Any]) -> None:
    t = trial.current(client_lr=0.1, algorithm="x", steps=2)
    assert (t["client_lr"], t["algorithm"], t["steps"]) == (0.5, "avg", 2)
    assert (t.seed, t.label, t.device, t.resume, t.first, t.last, t.budget) == (3, "fedavg", "cuda", None, 0, 3, 4)
    assert trial.current()["client_lr"] == 0.5
    with pytest.raises(ValueError, match="must have a default for 'client_lr', which the study sets"):
        trial.current(algorithm="x", client_rate=1)


def test_it_reports_numbers_of_any_library(files: dict[str, Any]) -> None:
    t = trial.current()
    t.report(0, loss=None, tokens=np.int64(4))
    t.report(1, loss=torch.tensor(0.5), tokens=True)
    t.report(2, loss=float("nan"), tokens=np.float32(1.5))
    assert reports(files)[:2] == [{"round": 0, "loss": None, "tokens": 4}, {"round": 1, "loss": 0.5, "tokens": 1}]
    assert '"loss": NaN' in Path(files["reports"]).read_text()
    with pytest.raises(TypeError, match="loss must be a number, got 'x'"):
        t.report(3, loss="x")


def test_it_ends_at_the_rung_with_a_checkpoint(files: dict[str, Any]) -> None:
    t, due = trial.current(), []
    for r in t.rounds():
        t.report(r, loss=1 / r)
        if t.checkpoint_due:
            due.append(r)
            with t.checkpoint() as folder:
                (folder / "state").write_text(str(r))
        assert not t.checkpoint_due, "it is written once"
    assert [line["round"] for line in reports(files)] == [1, 2, 3]
    assert due == [3]
    assert (Path(files["checkpoints"]) / "3" / "state").read_text() == "3"


def test_without_a_decision_it_waits_at_a_rung(files: dict[str, Any]) -> None:
    control, trained = Path(files["control"]), []

    def tell(**told: Any) -> None:
        (control.parent / "draft").write_text(json.dumps({"until": 1, "checkpoint": 0, "wait": True, **told}))
        (control.parent / "draft").replace(control)

    tell()
    t = trial.current()
    decisions = iter([{"until": 2}, {"until": 2, "wait": False}])

    thread = threading.Thread(target=lambda: trained.extend(t.rounds()))
    thread.start()
    for rounds in (1, 2):
        until(lambda rounds=rounds: len(trained) == rounds, 60)
        assert thread.is_alive()
        tell(**next(decisions))
    thread.join(60)
    assert trained == [1, 2]


def test_a_checkpoint_is_due_once_for_each_time_it_is_asked_for(files: dict[str, Any]) -> None:
    t, due = trial.current(), []
    Path(files["control"]).write_text(json.dumps({"until": 3, "checkpoint": 1}))
    for r in t.rounds():
        t.report(r)
        if t.checkpoint_due and r < 3:
            due.append(r)
            with t.checkpoint():
                pass
    assert due == [1]


def test_a_checkpoint_that_fails_does_not_count(files: dict[str, Any]) -> None:
    t = trial.current()
    t.report(1)
    with pytest.raises(ZeroDivisionError), t.checkpoint():
        raise ZeroDivisionError
    assert not (Path(files["checkpoints"]) / "1").exists()
    with t.checkpoint():
        pass
    assert [path.name for path in Path(files["checkpoints"]).iterdir()] == ["1"]


def test_a_checkpoint_of_the_same_round_replaces_the_one_before_as_a_whole(
    files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the program is killed while it removes the one before."""
    t = trial.current()
    t.report(1)
    for text in ("one", "two"):
        with t.checkpoint() as folder:
            (folder / "state").write_text(text)
    saved = Path(files["checkpoints"])
    assert [path.name for path in saved.iterdir()] == ["1"]
    assert (saved / "1" / "state").read_text() == "two"

    def killed(path: Path, **keys: Any) -> None:
        if path.is_dir():
            raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt), t.checkpoint() as folder:
        (folder / "state").write_text("three")
    assert (saved / "1" / "state").read_text() == "three"


def test_a_forked_process_is_ended_by_sigterm(files: dict[str, Any]) -> None:
    trial.current()
    child = os.fork()
    if not child:
        os._exit(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def test_sigterm_makes_a_checkpoint_due_and_ends_the_rounds(files: dict[str, Any]) -> None:
    t, trained = trial.current(), []
    for r in t.rounds():
        trained.append(r)
        signal.raise_signal(signal.SIGTERM)
        t.report(r)
        assert t.stopping
        assert t.checkpoint_due
    assert trained == [1]


def test_it_goes_on_after_the_round_of_its_checkpoint(files: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "trial.json").write_text(json.dumps({**files, "first": 2, "resume": str(tmp_path), "last": 4}))
    t = trial.current()
    assert t.resume == tmp_path
    assert list(t.rounds()) == [3], "the control file says until when"
    assert list(trial.Trial({"rounds": 4, "first": 2}, {}).rounds()) == [3, 4]


def test_by_hand_it_prints_its_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DRIFTLINE_TRIAL", raising=False)
    monkeypatch.setenv("DRIFTLINE_ROUNDS", "2")
    t = trial.current(client_lr=0.1)
    for r in t.rounds():
        t.report(r, loss=t["client_lr"])
        assert not t.checkpoint_due
        with t.checkpoint() as folder:
            assert folder.is_dir()
    assert capsys.readouterr().out == '{"round": 1, "loss": 0.1}\n{"round": 2, "loss": 0.1}\n'
    assert not folder.exists()


def test_it_may_be_read_in_another_thread(files: dict[str, Any]) -> None:
    found: list[trial.Trial] = []
    thread = threading.Thread(target=lambda: found.append(trial.current()))
    thread.start()
    thread.join()
    assert found[0].seed == 3


def test_it_says_which_rounds_must_be_reported(files: dict[str, Any]) -> None:
    t = trial.current()
    due = []
    for r in t.rounds():
        due.append(t.report_due)
        if t.report_due:
            t.report(r, loss=1)
    assert due == [False, False, True]
    assert list(trial.current().rounds()) == [1, 2, 3], "of several processes, one reports"
