"""Cores by affinity and by the quotas of control groups."""

import os
from pathlib import Path

import pytest

from service.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


V1 = "9:name=systemd:/\n4:memory:/x\n3:cpuset:/x\n1:cpu,cpuacct:/slurm/job_7"


@pytest.mark.parametrize(
    ("cores", "files"),
    [
        (8, {}),
        (8, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}),
        (2, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}),
        (1, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}),
        (
            3,
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max",
            },
        ),
        (4, {"proc/self/cgroup": "0::/of/the/host", "sys/fs/cgroup/cpu.max": "400000 100000"}),
        (8, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "6400000 100000"}),
        (
            2,
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
        ),
        (
            1,
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "30000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
        ),
    ],
)
def test_quotas(cores: int, files: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert usable_cores(tmp_path) == cores


def test_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    assert usable_cores(tmp_path) == 1
