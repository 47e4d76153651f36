"""Which files and functions a study may name: on a service, only those that the operator allows.

The task npz names a file, which the service and its workers open. Without this limit, anybody who may submit a study
could read any file on these machines. A model names a function that is called: without a limit, any program could be
run there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study.validation import from_spec_error
from driftline.wire.budgets import CheckedStudy
from trainers import SpecError, data_dir, require_declared, shown

_NAMES = ("path", "file", "folder")

Check = Callable[[Mapping[str, Any]], CheckedStudy]


def only_under(roots: Sequence[Path], check: Check) -> Check:
    """Returns a check of studies that first rejects files outside `roots`, whether or not they exist.

    Functions are allowed that a module of an installed package defines, if it has the entry point for that.

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
            model = task.get("model")
            if isinstance(model, Mapping) and "module" in model:
                try:
                    require_declared(model["module"], "task.model.module")
                except SpecError as error:
                    raise from_spec_error(error) from error
        return check(body)

    return checked


def _named(value: Any, place: str, is_file: bool = False) -> list[tuple[str, str]]:
    """Every string under a key `path`, `file` or `folder`, at any depth, also in lists, with its place in the study."""
    paths: list[tuple[str, str]] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            paths += _named(inner, f"{place}.{key}", key in _NAMES)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            paths += _named(inner, f"{place}.{number}", is_file)
    elif isinstance(value, str) and is_file:
        paths.append((place, value))
    return paths


def _is_inside(name: str, folders: Sequence[Path]) -> bool:
    """Whether a name leads to a file below these folders, and to no other file; False for names no file can have."""
    tried = [Path(name)] if os.path.isabs(name) else [Path(name), data_dir() / name]
    try:
        real = [Path(os.path.realpath(path)) for path in tried]
        inside = [path for path in real if any(path.is_relative_to(folder) for folder in folders)]
        return bool(inside) and not any(path.exists() for path in real if path not in inside)
    except (OSError, ValueError):  # too long, not allowed to look, a null byte, half of a surrogate pair
        return False


def _require(name: str, place: str, folders: Sequence[Path]) -> None:
    """Reject a name that leads outside: an absolute path, one with .., or a link."""
    if "://" in name:
        raise InvalidSpec(
            place,
            f"must name a file on this service, got the URL {shown(name)}; ask its operator to put the data into its "
            "data folder, or run the study on your own computer",
        )
    if not _is_inside(name, folders):
        raise InvalidSpec(
            place,
            f"must name a file in a folder that this service allows (relative to its data folder), got {shown(name)}; "
            "ask its operator to put it there, or run the study on your own computer",
        )
