"""Which files a study may name: on a service, only those in folders that the operator allows.

The task npz names a file, which the service and its workers open. Without this limit, anybody who may submit a study
could read any file on these machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.wire.budgets import CheckedStudy
from trainers import data_dir, shown

Check = Callable[[Mapping[str, Any]], CheckedStudy]


def only_under(roots: Sequence[Path], check: Check) -> Check:
    """Returns a check of studies that first rejects files outside `roots`, whether or not they exist.

    Args:
        roots: The allowed folders; if empty, no file is allowed.
        check: Called afterwards, for everything else.
    """
    folders = [Path(os.path.realpath(root)) for root in roots]

    def checked(body: Mapping[str, Any]) -> CheckedStudy:
        task = body.get("task")
        if isinstance(task, Mapping):
            for place, name in _named(task, "task"):
                _require(name, place, folders)
        return check(body)

    return checked


def _named(value: Any, place: str) -> list[tuple[str, str]]:
    """Every string under a key `path`, `file` or `folder`, at any depth, with its place in the study."""
    paths: list[tuple[str, str]] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{place}.{key}"
            if isinstance(inner, str) and key in ("path", "file", "folder"):
                paths.append((here, inner))
            else:
                paths += _named(inner, here)
    return paths


def _require(name: str, place: str, folders: Sequence[Path]) -> None:
    """Reject a name that leads outside: an absolute path, one with .., or a link."""
    tried = [Path(name)] if os.path.isabs(name) else [Path(name), data_dir() / name]
    real = [Path(os.path.realpath(path)) for path in tried]
    inside = [path for path in real if any(path.is_relative_to(folder) for folder in folders)]
    outside = [path for path in real if path not in inside]
    if not inside or any(path.exists() for path in outside):
        raise InvalidSpec(
            place,
            f"must name a file in a folder that this service allows (relative to its data folder), got {shown(name)}; "
            "ask its operator to put it there, or run the study on your own computer",
        )
