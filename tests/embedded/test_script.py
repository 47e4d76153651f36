"""Python scripts as people write them, run as they run them: no `if __name__`, no `close`, a Ray with a token."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.embedded.stored import stored_study

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STUDY = {
    "name": "first",
    "task": {"name": "quadratic", "problem": "two_clients"},
    "methods": [{"name": "fedavg", "space": {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 0.1, "local_steps": 2}}],
    "sampler": "quasi_random",
    "budget": {"trials_per_method": 2, "rounds": 10, "seeds": 0},
}

TWO_STUDIES = """
import os
from driftline import Client, Study, frontier, run
from driftline.errors import Conflict
study = Study.from_yaml("study.yaml")
client = Client()
first = client.submit(study)
second = client.submit(Study(**{**study.to_json(), "name": "second", "seed": 1}))
second.wait(progress=True)
print(first.wait().frontier().table(), second.mlflow_url, flush=True)
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    print(frontier("out/first").labels, flush=True)
    try:
        run("study.yaml", "out/third", progress=False)
    except Conflict as error:
        print(error, flush=True)
    os._exit(0)
"""
"""Also forks: the fork reads results, and is refused another study, in which Ray would hang."""

NOT_WAITED_FOR = """
import time
from driftline import Client, Study
study = Study.from_yaml("study.yaml")
job = Client().submit(Study(**{**study.to_json(), "budget": {"trials_per_method": 2, "rounds": 10**6, "seeds": 0}}))
while not sum(label.rounds_done for label in job.record().progress.values()):
    time.sleep(0.1)
"""


def script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    (folder / "script.py").write_text(text)
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "DRIFTLINE_"))}
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={
            **mine,
            "OMP_NUM_THREADS": "1",
            "RAY_worker_niceness": "0",  # see tests/conftest.py
            "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_two_studies_in_one_process_take_their_turns_and_a_fork_of_it_runs_none(tmp_path: Path) -> None:
    done = script(TWO_STUDIES, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "waits until another study of this process has finished" in done.stderr
    assert "fedavg" in done.stdout
    assert "driftline ui out/second" in done.stdout  # no server shows it yet
    assert [stored_study(tmp_path / "out" / name).state for name in ("first", "second")] == ["SUCCEEDED"] * 2
    labels, refusal = done.stdout.splitlines()[-2:]
    assert labels == "('fedavg',)"
    assert 'multiprocessing.get_context("spawn")' in refusal


def test_a_program_that_ends_without_waiting_stops_its_study_with_checkpoints(tmp_path: Path) -> None:
    done = script(NOT_WAITED_FOR, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"Stopping the study in {tmp_path / 'out' / 'first'}: the program ended without waiting for it ..."
    ]
    assert list((tmp_path / "out/first/checkpoints").glob("*/*.ckpt"))
