"""The files that a study's program names, also packed for a service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from driftline.archive import ArchiveError, packed
from driftline.errors import InvalidSpec
from driftline.study.program import SERVED, Program
from driftline.study.spec import Study
from trainers import shown

_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".git", ".venv")


def program_sources(program: Program) -> dict[str, Path]:
    """Every file by its path below the program's folder.

    Raises:
        InvalidSpec: A name is missing, or is neither a file nor a folder.
    """
    return dict(_sources(program))


def program_archive(program: Program) -> tuple[bytes, str]:
    """The program's files as an archive, and its digest.

    Raises:
        InvalidSpec: The files cannot be packed.
    """
    try:
        return packed(program_sources(program))
    except ArchiveError as error:
        raise InvalidSpec("program.files", str(error)) from error
    except OSError as error:
        raise InvalidSpec("program.files", f"{error.filename}: {error.strerror or error}") from error


def served(study: Study) -> tuple[dict[str, Any], bytes | None]:
    """The document with which a study is submitted to a service, and the archive that must be there before.

    Raises:
        InvalidSpec: The program's files cannot be packed.
    """
    document, program = study.to_json(), study.program
    if program is None or program.folder == SERVED:  # the study comes from a service
        return document, None
    changed, archive = {"folder": SERVED}, None
    if program.files:
        archive, changed["archive"] = program_archive(program)
    return document | {"program": document["program"] | changed}, archive


def _sources(program: Program) -> Iterator[tuple[str, Path]]:
    """Every file by its path below the program's folder."""
    root = Path(program.folder)
    for name in program.files:
        path = root / name
        if path.is_file():
            yield os.path.normpath(name), path
        elif path.is_dir():
            for inside, folders, files in os.walk(path):
                left_out = _LEFT_OUT(inside, [*folders, *files])
                folders[:] = sorted(set(folders) - left_out)
                for entry in [Path(inside, name) for name in (*folders, *sorted(set(files) - left_out))]:
                    shown_path = shown(os.path.relpath(entry, root))
                    if entry.is_dir() and entry.is_symlink():
                        problem = f"must hold no links to folders, got {shown_path}: name what it leads to"
                        raise InvalidSpec("program.files", problem)
                    if not (entry.is_file() or entry.is_dir()):
                        came = f"got {shown_path}, which leads nowhere, or is a pipe, socket or device"
                        raise InvalidSpec("program.files", f"must be files and folders, {came}")
                    if entry.is_file():
                        yield os.path.relpath(entry, root), entry
        else:
            raise InvalidSpec("program.files", f"must exist in {root}, got {shown(name)}")
