"""Studies that are checked in processes of their own: the same answers, in bounded time and memory."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from driftline.errors import InvalidSpec, Unavailable
from service.api import study_checks
from service.api.check_process import CHECK_BYTES, PROCESSES, CheckProcesses, check_bytes
from service.store.store import Store
from tests.waiting import until

from .api_setup import POINTS, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    found.mkdir()
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(40, 3)), "y": np.arange(40) % 2, "client": np.arange(40) % 4}
    for path in (found / "mine.npz", tmp_path / "secret.npz"):
        np.savez(path, **arrays)
    return found


def npz(path: Path) -> dict[str, Any]:
    return POINTS | {"task": {"name": "npz", "path": str(path), "model": "softmax"}}


def test_the_answers_are_those_of_the_check_itself(folder: Path, sqlite_store: Store) -> None:
    with closing(CheckProcesses([folder], urls=["https://data.example.org/sets/"])) as checks:
        assert checks(POINTS) == study_checks.check(POINTS)
        at_url = {"name": "data", "path": "https://data.example.org/sets/a.csv", "inputs": ["a"]}
        assert f"task.path: {study_checks.AT_URL}" in checks(POINTS | {"task": at_url}).remarks
        assert checks(npz(folder / "mine.npz")).fingerprint
        theory = POINTS | {"methods": [{"name": "fedavg", "space": "theory"}]}
        assert checks(theory).spec["methods"][0]["theory"]["measured"]
        assert checks(theory) == study_checks.check(theory)
        for wrong in (POINTS | {"name": "a b"}, POINTS | {"budget": {"round": 5}}, npz(folder.parent / "secret.npz")):
            with pytest.raises(InvalidSpec) as caught:
                checks(wrong)
            if wrong["task"] == POINTS["task"]:
                with pytest.raises(InvalidSpec) as same:
                    study_checks.check(wrong)
                assert (caught.value.path, caught.value.problem) == (same.value.path, same.value.problem)
            else:
                assert "in a folder that this service allows" in caught.value.problem
        with running(sqlite_store, check=checks) as service, service.client() as client:
            assert client.create(POINTS).spec == study_checks.check(POINTS).spec
            with pytest.raises(InvalidSpec, match=r"methods\[0\].name: no method"):
                client.create(POINTS | {"methods": [{"name": "fedavgg", "space": {}}]})
        started = [process._running for process in checks._processes if process._running is not None]
        assert len(started) == 1  # one after the other need only one
        if sys.platform == "linux":
            assert Path(f"/proc/{started[0].pid}/oom_score_adj").read_text() == "1000\n"  # the API is not killed first
    assert started[0].returncode is not None


def test_a_check_that_needs_too_much_memory_is_refused_and_a_process_without_studies_ends(folder: Path) -> None:
    rng = np.random.default_rng(0)
    path = folder / "large.npz"
    np.savez(path, x=rng.normal(size=(40_000, 500)), y=np.arange(40_000) % 2, client=np.arange(40_000) % 4)  # 160 MB
    with closing(CheckProcesses([folder], most_bytes=2**26, idle_seconds=0.5)) as checks:
        with pytest.raises(InvalidSpec, match=r"must|could not be checked"):
            checks(npz(path))
        assert checks(POINTS) == study_checks.check(POINTS)
        (last,) = [process._running for process in checks._processes if process._running is not None]
        until(lambda: last.poll() is not None)
        assert last.returncode == 0


def test_all_checks_fit_into_the_container_beside_the_api(tmp_path: Path) -> None:
    values = yaml.safe_load((Path(__file__).parents[2] / "helm/driftline/values.yaml").read_text())
    chart = int(values["api"]["resources"]["limits"]["memory"].removesuffix("Gi")) * 2**30
    for number, (name, limit, expected) in enumerate(
        (
            ("memory.max", str(chart), 704 * 2**20),
            ("memory/memory.limit_in_bytes", str(chart), 704 * 2**20),
            ("memory.max", "max", CHECK_BYTES),
            ("memory/memory.limit_in_bytes", "9223372036854771712", CHECK_BYTES),  # what version 1 calls no limit
            ("memory.max", str(2**20), 64 * 2**20),
        )
    ):
        file = tmp_path / str(number) / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True)
        file.write_text(f"{limit}\n")
        assert check_bytes(tmp_path / str(number)) == expected
    assert chart // 2**20 == PROCESSES * (704 + 192) + 256
    assert check_bytes(tmp_path / "none") == CHECK_BYTES


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts a shell script in the place of the processes; they write their ids into a file."""
    made: list[CheckProcesses] = []

    def put(text: str, seconds: float = 60.0) -> CheckProcesses:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\n{text}\n")
        file.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(file))
        made.append(CheckProcesses([], seconds=seconds))
        return made[-1]

    yield put
    for checks in made:
        checks.close()


def test_a_check_that_takes_too_long_is_ended(stand_in: Any, tmp_path: Path) -> None:
    checks = stand_in("read line; echo ready; read line; exec sleep 1000", seconds=0.3)
    for _ in range(2):  # the next study has a fresh process
        with pytest.raises(InvalidSpec, match=r"could not be checked within 0.3 s and 2048 MiB of memory"):
            checks(POINTS)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == len(set(pids)) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_does_not_start_is_no_fault_of_the_study(stand_in: Any) -> None:
    checks = stand_in("exit 1")
    with pytest.raises(Unavailable, match="the process that checks studies did not start"):
        checks(POINTS)


ANSWER = '{"checked": {"spec": {}, "fingerprint": "f", "remarks": []}}'


def test_a_process_that_died_is_replaced(stand_in: Any, tmp_path: Path) -> None:
    checks = stand_in(f"read line; echo ready; read line; echo '{ANSWER}'")  # and ends
    for _ in range(3):
        assert checks(POINTS).fingerprint == "f"
        running = [process._running for process in checks._processes if process._running is not None]
        until(lambda running=running: all(process.poll() is not None for process in running))
    assert len((tmp_path / "pids").read_text().split()) == 3


def test_a_process_that_ends_as_a_study_arrives_costs_the_study_nothing(stand_in: Any, tmp_path: Path) -> None:
    first = f"[ $(wc -l < {tmp_path}/pids) = 1 ]"
    checks = stand_in(f"read line; echo ready; read line; {first} && exit 0; echo '{ANSWER}'")
    assert checks(POINTS).fingerprint == "f"
    assert len((tmp_path / "pids").read_text().split()) == 2
