"""A study that is stopped, or killed, goes on and ends with the very curves of one that was left alone."""

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.embedded.stored import stored_study
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(780)]

RATE = {"float": [0.02, 0.5], "log": True}
STUDY: dict[str, Any] = {
    "name": "interrupted",
    "task": {"name": "digits", "clients": 10, "partition": {"dirichlet": 0.3}},
    "methods": [{"name": "fedavg", "space": {"client_lr": RATE, "server_lr": 0.2, "local_steps": {"choice": [1, 5]}}}],
    "batch_size": 10,
    "eval_every": 50,
    "sampler": "quasi_random",
    "objective": {"quality": "test_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 8, "rounds": 6000, "seeds": 1, "confirm": 2},
    "resources": {"packs": 4},
}
"""Each pack takes seconds on a fast machine too: what comes from outside must find the study in the midst of it."""

VARYING = ("trial", "wall_seconds")


class Command:
    """`driftline run` in a process group of its own.

    Args:
        folder: For its study file and log.
        out: The output folder.
        prompt: Whether its driver hears at once that it is to pause, and its packs look soon.
    """

    def __init__(self, folder: Path, out: Path, *, prompt: bool = False) -> None:
        file = folder / "study.yaml"
        file.write_text(yaml.safe_dump(STUDY))
        self._out = out
        self.log = folder / f"log-{time.monotonic_ns()}"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", (_PROMPT if prompt else "") + _RUN, str(file), str(out)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def wait_for_progress(self) -> None:
        """Returns when this run has trained some rounds."""
        self.wait_for("Ray is ready")
        start = self._trained()
        self._until(lambda: self._trained() > start)

    def wait_for(self, text: str) -> None:
        """Returns when it has said this."""
        self._until(lambda: text in self.log.read_text())

    def _until(self, true: Callable[[], bool]) -> None:
        def look() -> bool:
            found = true()
            assert found or self.process.poll() is None, "it was over too soon: " + self.log.read_text()
            return found

        until(look, 120, self.log.read_text)

    def _trained(self) -> int:
        return sum(label.rounds_done for label in stored_study(self._out).progress.values())

    def end(self, timeout_s: float = 240.0) -> int:
        """Its exit code."""
        return self.process.wait(timeout_s)

    def told(self) -> str:
        """Its log, and the ends of Ray's own, which are left if Ray has ended the process without a word."""
        roots = {tempfile.gettempdir(), "/tmp"}
        logs = (log for root in roots for log in Path(root).glob("driftline-ray-*/ray/session_*/logs/*.*"))
        new = [log for log in logs if log.stat().st_mtime > self.log.stat().st_ctime - 60]
        return "\n".join([self.log.read_text(), *(f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in new)])


_PROMPT = """
import functools
from service.driver import lifecycle
lifecycle.HEARTBEAT_S = 0.1
lifecycle.DriverOptions = functools.partial(lifecycle.DriverOptions, chunk_seconds=0.1)
"""
_RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests themselves run under nohup
sys.argv = ["driftline", "run", sys.argv[1], "--out", sys.argv[2]]
from service.cli.main import main
main()
"""


def rows(out: Path) -> list[dict[str, str]]:
    """What was measured of every trial, but its id and its seconds."""
    with (out / "trials.csv").open() as file:
        return [{key: value for key, value in row.items() if key not in VARYING} for row in csv.DictReader(file)]


def test_runs_that_signals_end_go_on_to_the_very_trials_of_one_that_nobody_disturbed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = Command(tmp_path, out)
    killed.wait_for_progress()
    killed.process.kill()  # Ray's own processes see that their driver is gone and end
    assert killed.end() == -signal.SIGKILL

    # Ctrl-C, a batch system's SIGTERM, or a closed terminal: each goes to the whole process group. Ray's own handler
    # would abort the process without checkpoints, and without its processes Ray would after a minute.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        command = Command(tmp_path, out, prompt=True)
        command.wait_for_progress()
        os.killpg(command.process.pid, number)
        assert command.end() == 128 + number, command.log.read_text()
        assert f"driftline resume {out}" in command.log.read_text()
        assert list(out.glob("checkpoints/*/*.ckpt"))

    impatient = Command(tmp_path, out)
    impatient.wait_for_progress()
    impatient.process.send_signal(signal.SIGINT)
    impatient.wait_for("Stopping")
    impatient.process.send_signal(signal.SIGINT)
    assert impatient.end(20.0) == 128 + signal.SIGINT
    assert "Traceback" not in impatient.log.read_text()

    killed = Command(tmp_path, out)
    killed.wait_for_progress()
    killed.process.send_signal(signal.SIGINT)
    killed.wait_for("Stopping")
    killed.process.kill()
    assert killed.end() == -signal.SIGKILL

    for folder in (out, tmp_path / "alone"):
        command = Command(tmp_path, folder)
        assert command.end() == 0, command.told()
    assert rows(out) == rows(tmp_path / "alone")
    assert "RUNNING" not in {row["state"] for row in rows(out)}
    assert not list(out.glob("checkpoints/*/*.ckpt"))
