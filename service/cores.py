"""How many CPU cores this process may use: those of its affinity, within the quota of its control group."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """The number of cores, rounded down, and at least 1.

    Args:
        root: Where the files of control groups are read; tests pass their own.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([cores, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Cores that this process's control group, and each one above it, may use; version 1 and version 2."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        if controllers and not mount.is_dir():
            mount = mount.parent / "cpu"
        group = mount / path.lstrip("/")  # in a container maybe the host's, which is missing here; its top is not
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount):
                break
            if controllers:
                quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
            else:
                quota, _, period = _text(folder / "cpu.max").partition(" ")
            cores = _ratio(quota, period)
            if math.isfinite(cores) and cores > 0:  # -1 and "max" are no quota
                yield cores


def _ratio(quota: str, period: str) -> float:
    try:
        return int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return math.inf


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
