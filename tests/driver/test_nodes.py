"""Trials of a program that spans several nodes."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayError

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from service.driver.job import PackJob
from service.driver.programs.node_run import NodeFault, TrialNode
from service.driver.programs.report_lines import ProgramError
from service.driver.ray import ray_nodes
from tests.commands.processes import running
from tests.driver.shell_programs import GOOD, Started, lines_of
from tests.driver.store_client import StoreClient, quadratic
from tests.driver.test_search import curves, ran
from tests.driver.two_nodes import study_of
from tests.waiting import until


class Others:
    """Other nodes on which the program ends, or fails, when it is told to."""

    def __init__(self, *, ended: bool = True, fault: NodeFault | None = None) -> None:
        self.ended, self.fault, self.calls = ended, fault, []

    def start(self, *, first: int, last: int) -> TrialNode:
        self.calls.append(f"start {first} {last}")
        return TrialNode(0, 2, "10.0.0.7", 29500)

    def wait(self, seconds: float) -> tuple[bool, NodeFault | None]:
        return self.ended, self.fault

    def end(self) -> None:
        self.calls.append("end")


def test_it_is_told_its_nodes_and_all_of_them_end_with_the_trial(started: Started, tmp_path: Path) -> None:
    others = Others()
    told = "echo $DRIFTLINE_NODE_RANK $DRIFTLINE_NODES $MASTER_ADDR $MASTER_PORT"
    assert len(lines_of(started(f"{told} > {tmp_path}/told; {GOOD}", others=others))) == 2
    assert (tmp_path / "told").read_text() == "0 2 10.0.0.7 29500\n"
    assert others.calls == ["start 0 2", "end"]
    assert len(lines_of(started(f"{told} > {tmp_path}/told; {GOOD}"))) == 2
    assert (tmp_path / "told").read_text().startswith("0 1 127.0.0.1 ")


@pytest.mark.parametrize(
    ("script", "others", "problem"),
    [
        (
            "sleep 60",
            Others(fault=NodeFault(1, "red", "ended with exit code 3", "no data")),
            r"ended with exit code 3 on node 1 \(red\), after round 0 of 2; stderr there: no data; log: ",
        ),
        (
            "sleep 60",
            Others(ended=False, fault=NodeFault(1, "", "is gone: its node or its worker has died")),
            "is gone: its node or its worker has died on node 1, after round 0 of 2",
        ),
        (
            "exit 9",
            Others(fault=NodeFault(1, "red", "was killed by SIGSEGV")),
            r"was killed by SIGSEGV on node 1 \(red\), after round 0 of 2",
        ),
        ("exit 9", Others(ended=False), "ended with exit code 9, after round 0 of 2"),
        (GOOD, Others(ended=False), "did not end on all nodes within 5 s of the first, after round 2 of 2"),
    ],
)
def test_a_fault_on_one_node_ends_the_trial_on_all(script: str, others: Others, problem: str, started: Started) -> None:
    pack = started(script, others=others)
    with pytest.raises(ProgramError, match=problem):
        lines_of(pack)
    assert others.calls[-1] == "end"
    assert not pack.running


class Futures:
    """Ray's futures, of which some have ended; waiting for the others takes all the time that it is given."""

    def __init__(self, ended: dict[str, NodeFault | RayError | None]) -> None:
        self.ended, self.waited_s = ended, 0.0

    def wait(self, runs: list[str], *, num_returns: int = 1, timeout: float) -> tuple[list[str], list[str]]:
        ready = [run for run in runs if run in self.ended][:num_returns]
        self.waited_s += timeout if len(ready) < num_returns else 0.0
        return ready, [run for run in runs if run not in ready]

    def get(self, run: str) -> NodeFault | None:
        if isinstance(outcome := self.ended[run], RayError):
            raise outcome
        return outcome


FAULT = NodeFault(2, "red", "ended with exit code 3")
GONE = NodeFault(2, "", "is gone: its node or its worker has died (RayError)")


@pytest.mark.parametrize(
    ("ended", "answer", "waits"),
    [
        ({"first": None, "second": FAULT}, (False, FAULT), False),
        ({"second": RayError()}, (False, GONE), False),
        ({"first": None, "second": None}, (False, None), True),
        ({"first": None, "second": None, "third": None}, (True, None), False),
    ],
)
def test_a_fault_is_told_while_other_nodes_still_run(
    ended: dict[str, Any], answer: tuple[bool, NodeFault | None], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    futures = Futures(ended)
    monkeypatch.setattr(ray_nodes, "ray", futures)
    others = ray_nodes.RayNodes(PackJob("pack", {}, "", nodes=4), None)
    others._runs = {"first": 1, "second": 2, "third": 3}
    assert others.wait(60.0) == answer
    assert (futures.waited_s > 0) == waits


@pytest.mark.parametrize(
    ("part", "changes", "problem"),
    [
        ("program", {"reuse": True}, "program.reuse: must be false with resources.nodes, got 2 nodes"),
        ("resources", {"nodes": 0}, "resources.nodes: must be at least 1, got nodes=0"),
        ("resources", {"nodes": 1.5}, "resources.nodes: "),
    ],
)
def test_nodes_that_make_no_sense_are_refused(part: str, changes: dict[str, Any], problem: str) -> None:
    document = study_of(2).to_json()
    document[part] |= changes
    with pytest.raises(InvalidSpec, match=problem):
        Study.from_json(document)


def test_only_programs_span_nodes() -> None:
    with pytest.raises(InvalidSpec, match=r"resources.nodes: must be 1 without a program, got 2: a pack is trained"):
        quadratic(resources={"nodes": 2})
    assert "nodes" not in study_of(1).to_json()["resources"], "older drivers read it, too"


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(500)
def test_torch_distributed_over_two_nodes_equals_one_node_also_under_torchrun_and_when_a_process_and_a_node_die(
    client: StoreClient, tmp_path: Path
) -> None:
    study = study_of(1, folder=str(tmp_path))
    study_id = ran(client, study, tmp_path / "one")
    rows = client.store.trials.find(study_id)
    alone = {str(row.number): curves(client, study_id)[row.id] for row in rows}
    with tempfile.TemporaryDirectory(prefix="dlt", dir="/tmp") as folder:  # its sockets need a short path
        variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        settings = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        settings |= dict.fromkeys(("HOME", "TMPDIR", "RAY_TMPDIR"), folder)
        done = subprocess.run(
            [sys.executable, "-m", "tests.driver.two_nodes", folder],
            env={**variables, **settings, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=480,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["ended"] == ["SUCCEEDED"] * 2, (found, done.stderr[-3000:])
        assert any(line.startswith("waiting up to 300 s for 2 nodes with 1 CPU each") for line in found["lines"])
        assert "Ray is ready: 1 worker of 1 CPU on each of 2 nodes" in found["lines"]
        assert "ended with exit code 7 on node 1" in done.stderr + done.stdout
        assert not list(Path(folder).glob("driftline-trial-*")), "later trials have removed what died workers left"
        until(lambda: not running(Path(folder) / "held", "", "HELD"))
    assert sum(found["attempts"]) >= 4  # two trials, and a fault of each kind
    for number, columns in (*found["curves"].items(), *found["torchrun"].items()):
        own = alone[number]
        assert columns["nodes"] == [2.0] * len(own["round"])
        for name in ("round", "loss"):
            assert columns[name] == own[name], f"trial {number}: {name}"
    for both in (found["curves"], found["torchrun"]):
        assert {len(columns["round"]) for columns in both.values()} == {2, 4}
