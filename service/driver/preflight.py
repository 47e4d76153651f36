"""Checks that this Python can run a driver: ``python -m service.driver.preflight``, run before one on a Ray cluster.

Uses only the standard library, so that it works where every package is missing.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version

UNFIT = 79
"""Exit code if something is missing or too old: another start would fail in the same way."""

PYTHON = (3, 11)
NEEDED = ("ray", "torch", "numpy", "scipy", "optuna", "cmaes", "pydantic", "httpx", "fsspec", "pyyaml")
"""Packages that drivers and workers import; their lowest versions come from Driftline's own metadata."""


def missing(needed: tuple[str, ...] = NEEDED, python: tuple[int, int] = PYTHON) -> list[str]:
    """What this Python lacks, as messages; empty if it can run a driver."""
    messages = []
    if sys.version_info[:2] < python:
        messages.append(f"Python {python[0]}.{python[1]} or newer, it has {sys.version.split()[0]}")
    lowest = _lowest()
    for name in needed:
        least = lowest.get(name, "0")
        try:
            have = version(name)
        except PackageNotFoundError:
            messages.append(f"{name} {least} or newer, it has none")
            continue
        if _numbers(have) < _numbers(least):
            messages.append(f"{name} {least} or newer, it has {have}")
    return messages


def _lowest() -> dict[str, str]:
    """Lowest versions by package, from Driftline's metadata: lines like ``torch>=2.13; extra == "local"``."""
    lowest: dict[str, str] = {}
    for line in requires("driftline") or []:
        text, _, marker = line.partition(";")
        match = re.match(r"([\w.-]+).*>=\s*([\d.]+)", text)
        if match and ("extra" not in marker or re.search(r"extra == .local.", marker)):
            lowest[match[1].lower()] = match[2]
    return lowest


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.13.0+cpu is (2, 13, 0)."""
    numbers = []
    for part in text.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


if __name__ == "__main__":
    lacks = missing()
    if lacks:
        print("the Ray cluster must have what a driver needs: " + "; ".join(lacks))
        sys.exit(UNFIT)
