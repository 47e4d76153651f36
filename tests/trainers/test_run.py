"""The command `python -m trainers.run`: its lines against a plain simulation, its errors, interruption and resuming."""

import io
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

from tests.trainers.documents import DESIGN
from trainers import run as command
from trainers.errors import SpecError
from trainers.run import run

HESSIANS = np.array([[[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 3.0]], [[1.5, -0.2], [-0.2, 0.7]]])
CENTERS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 2.0]])
WEIGHTS = np.array([0.5, 0.3, 0.2])
TRIAL: dict[str, Any] = {
    **DESIGN,
    "task": {
        "name": "quadratic",
        "hessians": HESSIANS.tolist(),
        "centers": CENTERS.tolist(),
        "client_weights": WEIGHTS.tolist(),
        "gradient_noise": 0.0,
    },
    "rounds": 40,
}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
DIAGNOSTIC = "wall_seconds"


def simulate(
    rounds: int,
    client_lr: float = 0.05,
    server_lr: float = 0.1,
    local_steps: int = 10,
    momentum: float = 0.0,
    nesterov: bool = False,
    decays: tuple[int, ...] = (),
) -> Iterator[dict[str, Any]]:
    """FedAvg on the three clients, written out plainly; `decays` are rounds from 1 after which both rates fall."""
    hessian = np.einsum("i,ijk->jk", WEIGHTS, HESSIANS)
    optimum = np.linalg.solve(hessian, np.einsum("i,ijk,ik->j", WEIGHTS, HESSIANS, CENTERS))
    x, velocity, norm = np.zeros(2), np.zeros(2), None

    def loss(at: np.ndarray) -> float:
        return float(sum(w * 0.5 * (at - c) @ a @ (at - c) for w, a, c in zip(WEIGHTS, HESSIANS, CENTERS, strict=True)))

    before = None
    for number in range(rounds + 1):
        yield {
            "round": number,
            "train_loss": before,
            "update_norm": norm,
            "client_lr": client_lr,
            "server_lr": server_lr,
            "loss": loss(x),
            "excess_loss": loss(x) - loss(optimum),
            "distance": float(np.linalg.norm(x - optimum)),
            "params": x.tolist(),
            "exchanges": number,
            "bytes_down": number * 3 * 2 * 8,
            "bytes_up": number * 3 * 2 * 8,
            "client_gradients": number * 3 * local_steps,
            "examples": number * 3 * local_steps,
            "slowest_examples": number * local_steps,
            "diverged": False,
        }
        before = loss(x)
        if number in decays:
            client_lr, server_lr = 0.1 * client_lr, 0.9 * server_lr
        mean = np.zeros(2)
        for weight, curvature, center in zip(WEIGHTS, HESSIANS, CENTERS, strict=True):
            y = x.copy()
            for _ in range(local_steps):
                gradient = curvature @ (y - center)
                mean += weight * gradient
                y -= client_lr * gradient
        velocity = momentum * velocity + mean
        x = x - server_lr * (mean + momentum * velocity if nesterov else velocity)
        norm = float(np.linalg.norm(mean))


def agree(lines: list[dict[str, Any]], expected: list[dict[str, Any]], skip: tuple[str, ...] = ()) -> None:
    assert len(lines) == len(expected)
    for line, right in zip(lines, expected, strict=True):
        assert set(line) - {DIAGNOSTIC, "member"} == set(right)
        for key, value in right.items():
            if value is None:
                assert line[key] is None
            elif key not in skip:
                assert line[key] == pytest.approx(value, rel=1e-11, abs=1e-13), (line["round"], key)


def written(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "trial.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def spawn(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trainers.run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        **options,
    )


@pytest.mark.parametrize("nesterov", [False, True])
def test_members_are_simulated_alike_each_with_its_number(nesterov: bool) -> None:
    members = [
        {"client_lr": 0.0, "server_lr": 0.02, "server.momentum": 0.9},
        {"client_lr": 0.1, "local_steps": 3},
        {"delta_lr": 1.0, "server.momentum": 0.5},
    ]
    server = {"name": "sgd", "nesterov": nesterov}
    lines = list(run({**TRIAL, "server": server, "members": members, "rounds": 15}))
    alone = [
        simulate(15, client_lr=0.0, server_lr=0.02, momentum=0.9, nesterov=nesterov),
        simulate(15, client_lr=0.1, local_steps=3, nesterov=nesterov),
        simulate(15, server_lr=0.05, momentum=0.5, nesterov=nesterov),
    ]
    assert [line["member"] for line in lines] == [0, 1, 2] * 16
    for number, expected in enumerate(alone):
        agree([line for line in lines if line["member"] == number], list(expected))


def test_the_plateau_schedule_decays_both_rates() -> None:
    schedule = {"name": "plateau", "window": 1, "patience": 2, "cooldown": 3, "min_delta": 10}
    lines = list(run({**TRIAL, "schedule": schedule, "rounds": 13}))
    # A loss never falls by 10: patience of 2 after the cooldown of 3, so a decay every 5 rounds, used from the next on.
    rates = [line["client_lr"] for line in lines]
    assert sorted({round(rate, 9) for rate in rates}, reverse=True) == [0.05, 0.005, 0.0005]
    agree(lines, list(simulate(13, decays=(5, 10))), skip=("client_lr", "server_lr"))


def test_members_appear_only_when_given() -> None:
    assert all("member" not in line for line in run({**TRIAL, "rounds": 1}))
    assert [line["member"] for line in run({**TRIAL, "rounds": 1, "members": [{}]})] == [0, 0]


def test_run_checks_before_it_trains() -> None:
    with pytest.raises(SpecError, match=r"method.local_steps must be at least 1, got local_steps=0"):
        run({**TRIAL, "method": {**TRIAL["method"], "local_steps": 0}})


class TestCommand:
    def test_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert command.main([written(tmp_path, TRIAL)]) == 0
        out, err = capsys.readouterr()
        agree([json.loads(line) for line in out.splitlines()], list(simulate(40)))
        assert err == ""

    def test_standard_input(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({**TRIAL, "rounds": 3})))
        assert command.main(["-"]) == 0
        agree([json.loads(line) for line in capsys.readouterr().out.splitlines()], list(simulate(3)))

    def test_help_does_not_wait_for_torch(self) -> None:
        script = (
            "import sys\nfrom trainers.run import main\ntry:\n    main(['--help'])\n"
            "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert "--checkpoint FILE" in done.stdout
        assert done.stdout.splitlines()[-1] == "0 False"

    def test_warnings_go_to_stderr(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        document = {**TRIAL, "rounds": 1, "method": {**TRIAL["method"], "client_lr": 0.001}}
        assert command.main([written(tmp_path, document)]) == 0
        err = capsys.readouterr().err
        assert err.startswith("warning: method.server_lr is 100 times client_lr")
        assert err.count("\n") == 1

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (
                {**TRIAL, "method": {**TRIAL["method"], "client_lr": -1}},
                "method.client_lr must be at least 0, got client_lr=-1",
            ),
            ('{"task": NaN, "task": 1}', 'every key must occur once in its object, got "task" twice'),
        ],
    )
    def test_a_wrong_document_is_one_line_and_exit_code_2(
        self, document: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command.main([written(tmp_path, document)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"error: {message}\n"

    @pytest.mark.parametrize("content", ["{", "", "[1, 2", '{"a": 1,}', "[" * 100_000])
    def test_what_is_not_json(self, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = written(tmp_path, content)
        assert command.main([path]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: {path} must hold a JSON document: ")
        assert err.count("\n") == 1

    def test_no_such_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert command.main(["nowhere.json"]) == 2
        assert capsys.readouterr().err == "error: nowhere.json must be a file to read: No such file or directory\n"

    def test_a_closed_pipe_ends_the_run_silently(self, tmp_path: Path) -> None:
        process = spawn(written(tmp_path, {**TRIAL, "rounds": 200_000}))
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["round"] == 0
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""
        process.stderr.close()


class TestCheckpoints:
    def test_an_interrupted_trial_goes_on_where_it_stopped(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        document = {**TRIAL, "rounds": 1000, "task": {**TRIAL["task"], "gradient_noise": 0.1}, "report": []}
        path, saved = written(tmp_path, document), str(tmp_path / "trial.ckpt")
        lines: list[str] = []
        process = spawn(path, "--checkpoint", saved)
        assert process.stdout is not None
        lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(timeout=60) == 130
        process.stdout.close()
        process.stderr.close()
        last = json.loads(lines[-1])["round"]
        assert 0 < last < 1000
        assert err == f"interrupted after round {last} of 1000; run again with --checkpoint {saved} to continue\n"
        assert command.main([path, "--checkpoint", saved]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        both = [json.loads(line) for line in lines + out.splitlines()]
        whole = list(run(document))
        assert [line["round"] for line in both] == list(range(1001))
        agree(both, [{key: value for key, value in line.items() if key != DIAGNOSTIC} for line in whole])
        assert sorted(item.name for item in tmp_path.iterdir()) == ["trial.ckpt", "trial.json"]

    def test_a_finished_trial_has_nothing_left_to_say(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = [written(tmp_path, {**TRIAL, "rounds": 3}), "--checkpoint", str(tmp_path / "c")]
        assert command.main(arguments) == 0
        assert len(capsys.readouterr().out.splitlines()) == 4
        assert command.main(arguments) == 0
        assert capsys.readouterr().out == ""

    def test_a_checkpoint_of_another_trial_or_a_damaged_one_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        saved = tmp_path / "c"
        assert command.main([written(tmp_path, {**TRIAL, "rounds": 3}), "--checkpoint", str(saved)]) == 0
        capsys.readouterr()
        other = written(tmp_path, {**TRIAL, "rounds": 3, "seed": 1})
        assert command.main([other, "--checkpoint", str(saved)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        saved.write_bytes(saved.read_bytes()[:-5])
        assert command.main([other, "--checkpoint", str(saved)]) == 2
        assert capsys.readouterr().err.startswith("error: ")
        assert command.main([other, "--checkpoint", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith("error: --checkpoint must be a file to read")
        assert command.main([other, "--checkpoint", str(tmp_path / "no" / "c")]) == 2
        assert capsys.readouterr().err.startswith("error: the folder of --checkpoint must exist")

    def test_the_checkpoint_is_written_while_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(command, "_CHECKPOINT_SECONDS", 0.0)
        monkeypatch.setattr(command, "_CHUNK_SECONDS", 0.005)
        writes = []
        monkeypatch.setattr(command, "put", lambda path, data: writes.append((len(data) > 100, path.name)))
        assert command.main([written(tmp_path, {**TRIAL, "rounds": 200}), "--checkpoint", str(tmp_path / "c")]) == 0
        assert len(writes) > 2
        assert set(writes) == {(True, "c")}


@pytest.mark.parametrize("device", ["abacus", "cuda:77", "xpu:0"])
def test_a_device_that_is_not_there_is_said_in_one_line(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([written(tmp_path, TRIAL), "--device", device]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: --device must be one that torch can use here, got {device}: ")
    assert err.count("\n") == 1


def test_the_command_works_outside_the_main_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    path = written(tmp_path, {**TRIAL, "rounds": 2})
    thread = threading.Thread(target=lambda: codes.append(command.main([path])))
    thread.start()
    thread.join(timeout=60)
    assert codes == [0]
    assert len(capsys.readouterr().out.splitlines()) == 3
