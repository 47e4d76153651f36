"""Checkpoints of packs: files on any file system that fsspec reads.

A pack's files are ``PREFIX.2.7.00000120.ckpt``: the driver's attempt, the number of the pack under that attempt, the
round. The newest `KEPT` files are kept, as a fallback for a damaged one. Each file appears whole or not at all. The
trainers' own checksum verifies the content.

Files of a later start of the same trials count as newer, whatever their round. A worker removes only files older than
its own, so a hung worker that was replaced and then wakes up does no harm.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec

from trainers.own_files import DRAFT, put

KEPT = 2
_SUFFIX = ".ckpt"
_NAMED = re.compile(rf"\.(\d+)\.\d+\.\d+{re.escape(_SUFFIX)}")


def join(folder: str, *names: str) -> str:
    """A path or URL below a folder.

    Examples:
        >>> join("s3://bucket/runs/", "01k6", "p1")
        's3://bucket/runs/01k6/p1'
    """
    return posixpath.join(folder, *names)


def write(prefix_url: str, start: tuple[int, int], round_number: int, data: bytes) -> str:
    """Stores a checkpoint, then removes older ones beyond the newest `KEPT`.

    Args:
        prefix_url: Prefix of the pack's files.
        start: The driver's attempt, and the number of the pack under that attempt.
        round_number: Server updates done.
        data: The whole checkpoint.

    Returns:
        Its path or URL.
    """
    url = f"{prefix_url}.{start[0]}.{start[1]}.{round_number:08d}{_SUFFIX}"
    _put(url, data)
    for old in [name for age, name in _aged(prefix_url) if age <= (*start, round_number)][KEPT:]:
        _delete(old)
    return url


def names(prefix_url: str, rounds_known: int) -> Iterator[str]:
    """The pack's checkpoints, newest first, without those of rounds that were not reported.

    Args:
        prefix_url: Prefix of the pack's files.
        rounds_known: Rounds that were reported to the service. Only a replaced worker writes a checkpoint beyond them;
            its reports were never stored, so resuming from it would leave a gap in the curves.
    """
    for (_, _, number), name in _aged(prefix_url):
        if number <= rounds_known:
            yield name


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
    """Removes all checkpoints of a pack, if there are any."""
    for _, url in _aged(prefix_url):
        _delete(url)


def clear(folder: str, attempt: int) -> None:
    """Removes the checkpoints and drafts of drivers up to this attempt from a folder, if it exists.

    Removes the folder too if nothing else is in it.
    """
    files, root = _open(folder)
    if _local(files):
        _refuse_link(root)
    files.invalidate_cache()  # other processes write into it
    for pattern in (f"*{_SUFFIX}", f"*{DRAFT}"):
        for name in files.glob(f"{_literal(root)}/{pattern}"):
            if _attempt(name) <= attempt:
                with contextlib.suppress(FileNotFoundError):
                    files.rm_file(name)
    with contextlib.suppress(OSError, NotImplementedError):
        files.rmdir(root)


def folders(root_url: str) -> list[str]:
    """Names of the folders in a folder; none if it does not exist."""
    files, root = _open(root_url)
    files.invalidate_cache()
    try:
        inside = files.ls(root, detail=True)
    except FileNotFoundError:
        return []
    return [posixpath.basename(entry["name"].rstrip("/")) for entry in inside if entry["type"] == "directory"]


def _open(url: str) -> tuple[Any, str]:
    if "://" not in url:  # a local path, even with characters that are special in a URL
        return fsspec.filesystem("file"), os.path.abspath(url)
    files, path = fsspec.core.url_to_fs(url)
    return files, path


def _local(files: Any) -> bool:
    return "file" in (files.protocol if isinstance(files.protocol, tuple) else (files.protocol,))


def _put(url: str, data: bytes) -> None:
    files, path = _open(url)
    if not _local(files):
        files.pipe_file(path, data)  # an object store shows the whole object or none
        return
    folder = os.path.dirname(path)
    _refuse_link(folder)
    os.makedirs(folder, exist_ok=True)
    put(Path(path), data)


def _refuse_link(folder: str) -> None:
    """Refuses a link: Driftline creates a study's folder itself, so somebody else has put the link there."""
    if os.path.islink(folder):
        raise OSError(errno.ELOOP, f"is a link to {os.readlink(folder)!r}: remove the link", folder)


def _delete(url: str) -> None:
    files, path = _open(url)
    with contextlib.suppress(FileNotFoundError):
        files.rm_file(path)


def _aged(prefix_url: str) -> list[tuple[tuple[int, int, int], str]]:
    """The pack's checkpoints with (attempt, number, round), newest first."""
    files, root = _open(prefix_url)
    ends = (name.removesuffix(_SUFFIX).split(".")[-3:] for name in files.glob(f"{_literal(root)}.*.*.*{_SUFFIX}"))
    checkpoints = [
        ((int(end[0]), int(end[1]), int(end[2])), f"{prefix_url}.{'.'.join(end)}{_SUFFIX}")
        for end in ends
        if all(map(str.isdecimal, end))
    ]
    return sorted(checkpoints, reverse=True)


def _attempt(name: str) -> int:
    """The attempt in the name of a checkpoint or draft; 0 where there is none."""
    match = _NAMED.search(posixpath.basename(name))
    return int(match[1]) if match else 0


def _literal(path: str) -> str:
    """A path as a glob pattern that matches only itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
