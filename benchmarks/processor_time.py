"""Processor time of processes and of all that they started, and resident memory."""

from __future__ import annotations

import os
import time
from pathlib import Path


def descendants(root: int) -> list[int]:
    """The processes below a process, itself not among them."""
    parents = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            text = Path(entry.path, "stat").read_text()
        except OSError:
            continue
        parents[int(entry.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    below = []
    for process in parents:
        above = process
        while above in parents and above != root:
            above = parents[above]
        if above == root and process != root:
            below.append(process)
    return below


def seconds(process: int) -> float:
    """Processor seconds of a process so far; 0 if it has ended."""
    try:
        return time.clock_gettime((~process << 3) | 2)  # its CPU clock, as clock_getcpuclockid(3) names it
    except OSError:
        return 0.0


def tree_seconds(root: int) -> float:
    """Processor seconds of a process and of all below it."""
    return sum(seconds(process) for process in [root, *descendants(root)])


def resident_mb(process: int | str = "self") -> float:
    """Resident memory of a process, in MB; 0 if it has ended."""
    try:
        pages = int(Path("/proc", str(process), "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
