"""Cores by affinity and by the quotas of control groups."""

import os
from pathlib import Path

import pytest

from service.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


V1 = "9:name=systemd:/\n4:memory:/x\n3:cpuset:/x\n1:cpu,cpuacct:/slurm/job_7"
JOB = {"cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "200000", "cpu,cpuacct/slurm/job_7/cpu.cfs_period_us": "100000"}
OF_ALL = {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("cores", "group", "files"),
    [
        (8, "", {}),
        (8, "0::/", {"cpu.max": "max 100000"}),
        (2, "0::/", {"cpu.max": "250000 100000"}),
        (1, "0::/", {"cpu.max": "50000 100000"}),
        (3, "0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max"}),
        (4, "0::/of/the/host", {"cpu.max": "400000 100000"}),
        (8, "0::/", {"cpu.max": "6400000 100000"}),
        (2, V1, JOB | OF_ALL),
        (1, V1, {"cpu/cpu.cfs_quota_us": "30000", "cpu/cpu.cfs_period_us": "100000"}),
    ],
)
def test_quotas(cores: int, group: str, files: dict[str, str], tmp_path: Path) -> None:
    written = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (written | ({"proc/self/cgroup": group} if group else {})).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cores(tmp_path) == cores


def test_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    assert usable_cores(tmp_path) == 1
