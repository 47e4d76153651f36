"""Checkpoints of packs, and the flag that asks packs to stop: files on any file system that fsspec reads.

A pack's files are ``PREFIX.00000120.ckpt``: the round in the name, the newest `KEPT` of them kept, so that a damaged
one has an older one to fall back on. Each appears at once and whole, or not at all. What is inside is checked by the
trainers' own checksum.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator
from typing import Any

import fsspec

KEPT = 2
_SUFFIX = ".ckpt"
_DRAFT = ".part"
_FLAG = "stop."


def join(folder: str, *names: str) -> str:
    """A path or URL below a folder.

    Examples:
        >>> join("s3://bucket/runs/", "01k6", "p1")
        's3://bucket/runs/01k6/p1'
    """
    return posixpath.join(folder, *names)


def write(prefix_url: str, round_number: int, data: bytes) -> str:
    """Stores a checkpoint, then removes those that are no longer kept.

    Args:
        prefix_url: Prefix of the pack's files.
        round_number: Server updates done.
        data: The whole checkpoint.

    Returns:
        Its path or URL.
    """
    url = f"{prefix_url}.{round_number:08d}{_SUFFIX}"
    _put(url, data)
    for old in list(names(prefix_url))[KEPT:]:
        _delete(old)
    return url


def names(prefix_url: str) -> Iterator[str]:
    """The pack's checkpoints, newest first."""
    files, root = _open(prefix_url)
    found = files.glob(f"{_literal(root)}.*{_SUFFIX}")
    rounds = (name.removesuffix(_SUFFIX).rpartition(".")[2] for name in found)
    for number in sorted(filter(str.isdecimal, rounds), key=int, reverse=True):
        yield f"{prefix_url}.{number}{_SUFFIX}"


def round_of(url: str | None) -> int:
    """The round in the name of a checkpoint; 0 without a checkpoint.

    Examples:
        >>> round_of("s3://bucket/runs/pack.1f.00000120.ckpt")
        120
    """
    number = (url or "").removesuffix(_SUFFIX).rpartition(".")[2]
    return int(number) if number.isdecimal() else 0


def read(url: str) -> bytes:
    """A checkpoint's bytes."""
    files, path = _open(url)
    data: bytes = files.cat_file(path)
    return data


def remove(prefix_url: str) -> None:
    """Removes all checkpoints of a pack; none is fine."""
    for url in list(names(prefix_url)):
        _delete(url)


def clear(folder: str) -> None:
    """Removes all checkpoints in a folder, with drafts and flags that dead drivers have left; no folder is fine.

    The folder goes too when nothing else is in it.
    """
    files, root = _open(folder)
    for pattern in (f"*{_SUFFIX}", f"*{_DRAFT}", f"{_FLAG}*"):
        for name in files.glob(f"{_literal(root)}/{pattern}"):
            with contextlib.suppress(FileNotFoundError):
                files.rm_file(name)
    with contextlib.suppress(OSError, NotImplementedError):
        files.rmdir(root)


def flag(folder: str, attempt: int) -> str:
    """The file that asks the packs of a driver's attempt to stop.

    Examples:
        >>> flag("out/checkpoints/01k6", 2)
        'out/checkpoints/01k6/stop.2'
    """
    return join(folder, f"{_FLAG}{attempt}")


def raise_flag(url: str) -> None:
    """Asks all packs that look at this flag to stop. An empty flag counts too: it fits on a full disk."""
    try:
        _put(url, b"stop")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _put(url, b"")


def flagged(url: str) -> bool:
    """Whether packs are asked to stop. A file system that cannot say for now has not asked."""
    files, path = _open(url)
    files.invalidate_cache()
    try:
        return bool(files.exists(path))
    except OSError:
        return False


def lower_flag(url: str) -> None:
    """Removes the flag; no flag is fine."""
    _delete(url)


def _open(url: str) -> tuple[Any, str]:
    files, path = fsspec.core.url_to_fs(url)
    return files, path


def _local(files: Any) -> bool:
    return "file" in (files.protocol if isinstance(files.protocol, tuple) else (files.protocol,))


def _put(url: str, data: bytes) -> None:
    files, path = _open(url)
    if not _local(files):
        files.pipe_file(path, data)  # an object store shows the whole object or none
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = f"{path}.{os.getpid()}{_DRAFT}"
    try:
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def _delete(url: str) -> None:
    files, path = _open(url)
    with contextlib.suppress(FileNotFoundError):
        files.rm_file(path)


def _literal(path: str) -> str:
    """A path as a glob pattern that matches only itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
