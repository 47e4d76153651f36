"""A checkpoint folder of a program as one object: an archive with a checksum, and the state that belongs to it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 2**30
"""Largest packed checkpoint folder."""

FOLDER = "folder"
"""Name of the folder where a checkpoint is unpacked."""

_STATE = "driftline.json"
_DIGEST_BYTES = hashlib.sha256().digest_size


class Damaged(OSError):
    """A packed checkpoint whose content is not what was written."""


def packed(folder: Path, state: Mapping[str, Any]) -> bytes:
    """A checkpoint folder as one object.

    Args:
        folder: Folder with files, folders, and links to these only.
        state: JSON that is stored with the folder.

    Raises:
        OSError: The folder is too large, or holds something else.
    """
    size = 0
    for path in _paths(folder):
        kind = path.lstat()
        if stat.S_ISREG(kind.st_mode):
            size += kind.st_size
        elif stat.S_ISLNK(kind.st_mode) and not _within(path, folder):
            came = f"a link from {path.relative_to(folder)} to {os.readlink(path)}"
            raise OSError(f"the checkpoint {folder.name} must hold its files itself, got {came}: copy the file")
        elif not (stat.S_ISDIR(kind.st_mode) or stat.S_ISLNK(kind.st_mode)):
            came = f"{path.relative_to(folder)}, a pipe, socket or device"
            raise OSError(f"the checkpoint {folder.name} must hold files and folders, got {came}")
    if size > MOST_BYTES:
        most, came = f"{MOST_BYTES / 2**30:g} GiB", f"{size / 2**30:.3g} GiB"
        raise OSError(f"the checkpoint {folder.name} must have at most {most}, got {came}: leave data out")
    text = json.dumps(state).encode()
    buffer = io.BytesIO()
    buffer.write(bytes(_DIGEST_BYTES))
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        head = tarfile.TarInfo(_STATE)
        head.size = len(text)
        archive.addfile(head, io.BytesIO(text))
        archive.add(folder, FOLDER)
    with buffer.getbuffer() as data:
        data[:_DIGEST_BYTES] = hashlib.sha256(data[_DIGEST_BYTES:]).digest()
    return buffer.getvalue()


def unpacked(data: bytes, folder: Path) -> dict[str, Any]:
    """Unpacks a checkpoint into a new folder; returns its state.

    Raises:
        Damaged: The content is not what was packed.
        OSError: The files cannot be written here.
    """
    content = memoryview(data)[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
        raise Damaged("is damaged: its checksum is another one")
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
        state: dict[str, Any] = json.loads((folder / _STATE).read_bytes())
    except (tarfile.TarError, ValueError, KeyError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Damaged(f"is damaged: {error}") from error
    return state


def _paths(folder: Path) -> Iterator[Path]:
    """Everything below a folder; links are not followed."""
    for inside, folders, files in os.walk(folder, onerror=_raise):
        yield from (Path(inside, name) for name in (*folders, *files))


def _raise(error: OSError) -> None:
    raise error


def _within(link: Path, folder: Path) -> bool:
    """Whether a link is relative, and leads to something in the folder."""
    to = os.readlink(link)
    root = os.path.realpath(folder)
    return not os.path.isabs(to) and os.path.realpath(link).startswith(f"{root}{os.sep}") and link.exists()
