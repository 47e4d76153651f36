"""The files and URLs that a task names, found in its document without checking it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.data.url_prefixes import is_url

_FILES = ("path", "file", "folder")


def files_of(task: Any, key_path: str = "task", is_file: bool = False) -> list[tuple[str, str]]:
    """Every string under a key `path`, `file` or `folder` of a task, at any depth, also in lists, with its dotted path.

    Args:
        task: A task's document, or a part of it; not checked yet.
        key_path: Its dotted path in the study.
        is_file: Whether `task` is under such a key.
    """
    files: list[tuple[str, str]] = []
    if isinstance(task, Mapping):
        for key, inner in task.items():
            files += files_of(inner, f"{key_path}.{key}", key in _FILES)
    elif isinstance(task, list):
        for number, inner in enumerate(task):
            files += files_of(inner, f"{key_path}.{number}", is_file)
    elif isinstance(task, str) and is_file:
        files.append((key_path, task))
    return files


def urls_of(task: Any) -> list[tuple[str, str]]:
    """The URLs among `files_of`, with their dotted paths."""
    return [(key_path, name) for key_path, name in files_of(task) if is_url(name)]
