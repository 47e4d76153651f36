"""Errors of commands that write a new file."""

from __future__ import annotations

from pathlib import Path

from driftline.errors import Conflict, InvalidSpec


def file_exists(path: Path) -> Conflict:
    """The error for a file that exists."""
    return Conflict(f"{path} exists and is not overwritten: give the name of a new file")


def cannot_write(argument: str, path: Path, error: OSError) -> InvalidSpec:
    """The error for a file that cannot be written; `argument` names it on the command line."""
    return InvalidSpec(argument, f"cannot write {str(path)!r}: {error.strerror or error}")
