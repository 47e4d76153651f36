"""Which files, URLs and functions a study may name: on a service, only those that the operator allows.

A task names files, which the service and its workers open. Without this limit, anybody who may submit a study could
read any file on these machines, or whatever their network reaches. A model names a function that is called: without a
limit, any program could be run there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study.validation import from_spec_error
from driftline.wire.budgets import CheckedStudy
from trainers import SpecError, allowing, data_dir, files_of, is_url, require_declared, shown

Check = Callable[[Mapping[str, Any]], CheckedStudy]

_OWN = "or run the study on your own computer"


def only_under(
    roots: Sequence[Path], check: Check, urls: Sequence[str] = (), check_without_data: Check | None = None
) -> Check:
    """Returns a check of studies that first rejects files outside `roots`, whether or not they exist, and URLs.

    A model's function is allowed if an installed package declares the function's module in an entry point.

    Args:
        roots: The allowed folders; if empty, no file is allowed.
        check: Called afterwards, for everything else.
        urls: What URLs must begin with, see `trainers.UrlPrefix`; if empty, no URL is allowed. None is read.
        check_without_data: Called instead of `check` for a study that names a URL.
    """
    folders = [Path(os.path.realpath(root)) for root in roots]

    def checked(body: Mapping[str, Any]) -> CheckedStudy:
        task = body.get("task")
        elsewhere = False
        if isinstance(task, Mapping):
            for key_path, name in files_of(task):
                if is_url(name):
                    elsewhere = True
                    _require_allowed(name, key_path, urls)
                else:
                    _require(name, key_path, folders)
            model = task.get("model")
            if isinstance(model, Mapping) and "module" in model:
                try:
                    require_declared(model["module"], "task.model.module")
                except SpecError as error:
                    raise from_spec_error(error) from error
        return (check_without_data or check)(body) if elsewhere else check(body)

    return checked


def _is_inside(name: str, folders: Sequence[Path]) -> bool:
    """Whether a name leads to a file below these folders, and to no other file; False for names no file can have."""
    tried = [Path(name)] if os.path.isabs(name) else [Path(name), data_dir() / name]
    try:
        real = [Path(os.path.realpath(path)) for path in tried]
        inside = [path for path in real if any(path.is_relative_to(folder) for folder in folders)]
        return bool(inside) and not any(path.exists() for path in real if path not in inside)
    except (OSError, ValueError):  # no such name is possible, or it may not be looked up
        return False


def _require(name: str, key_path: str, folders: Sequence[Path]) -> None:
    """Reject a name that leads outside: an absolute path, one with .., or a link."""
    if not _is_inside(name, folders):
        raise InvalidSpec(
            key_path,
            f"must name a file in a folder that this service allows (relative to its data folder), got {shown(name)}; "
            f"ask its operator to put it there, {_OWN}",
        )


def _require_allowed(url: str, key_path: str, prefixes: Sequence[str]) -> None:
    """Reject a URL that begins with none of the prefixes."""
    try:
        allowing(url, prefixes)
    except ValueError as error:
        setting = "studies.dataUrls in its chart, DRIFTLINE_DATA_URLS otherwise"
        problem = f"{error}; ask the operator of this service to allow it ({setting}), {_OWN}"
        raise InvalidSpec(key_path, problem) from error
