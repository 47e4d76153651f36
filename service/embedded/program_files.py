"""The files of a study's program: copied into the output folder when the study begins, and used from there."""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path

from driftline.errors import InvalidSpec
from driftline.study.program import Program
from driftline.study.program_sources import program_archive, program_sources

FILES = "program"
"""The folder with the copy, in an output folder."""

DRAFT = f"{FILES}.draft"
"""The folder into which the files are being copied."""

TRIALS = "trials"
"""The folder with the logs and working files of the program's runs, in an output folder."""

MOST_BYTES = 32 * 2**20
"""Most bytes of a program's files."""


def keep_files(program: Program, folder: Path) -> None:
    """Copies a program's files into an output folder, or checks that the copy there is the same.

    Raises:
        InvalidSpec: A file is missing, they are too large, or one has changed since the study began.
    """
    if not program.files:
        return
    sources = program_sources(program)
    if (size := sum(path.stat().st_size for path in sources.values())) > MOST_BYTES:
        most, came = f"{MOST_BYTES / 2**20:g} MiB", f"{size / 2**20:.1f} MiB"
        raise InvalidSpec("program.files", f"must have at most {most}, got {came}: leave data out")
    if program.archive not in (None, program_archive(program)[1]):
        raise InvalidSpec("program.files", f"must be those whose digest the study names, {program.archive}")
    copy = folder / FILES
    if copy.is_dir():
        for name, path in sources.items():
            if not (copy / name).is_file() or not filecmp.cmp(path, copy / name, shallow=False):
                problem = (
                    f"{name} must be as it was when the study in {folder} began: put it back, or choose another folder"
                )
                raise InvalidSpec("program.files", problem)
        return
    draft = copy.with_name(DRAFT)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for name, path in sources.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, draft / name)
        _sync(draft / name)
    draft.rename(copy)


def program_folder(folder: Path) -> str:
    """The copy in an output folder; "" if there is none."""
    copy = folder / FILES
    return str(copy.resolve()) if copy.is_dir() else ""


def remove_work(folder: Path) -> None:
    """Removes the working files that killed workers have left in an output folder; follows no links."""
    for work in (folder / TRIALS).glob("*.work"):
        if work.is_symlink():
            work.unlink()
        else:
            shutil.rmtree(work, ignore_errors=True)


def _sync(path: Path) -> None:
    """Flushes a file to the disk, before its folder gets the name of a complete copy."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
