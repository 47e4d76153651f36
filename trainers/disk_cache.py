"""A cache of files that are made once, below ~/.cache/driftline/data: tables, downloads, MLflow's empty schema.

An entry is a folder whose name is a hash of its sources. It is written under another name and renamed when complete, so
that a killed process leaves no partial entry. A lock for each entry, which is released when its process ends, keeps two
processes from making the entry twice. A truncated or overwritten entry is made again. The least recently used entries
are removed when all together exceed the limit, $DRIFTLINE_CACHE_GIB; a process can read the files that it has mapped
until it ends. If the folder is not writable, nothing is cached.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainers import own_files

VARIABLE = "DRIFTLINE_CACHE_GIB"
_DEFAULT_GIB = 50.0

T = TypeVar("T")

_SEAL = "entry.json"
_DIGEST = "sha256"
_LARGE = 32 * 2**20  # bytes of a file whose checksum is remembered
_LONG = 2**20  # bytes of an array in a file
_SETTLED_S = 2.0  # a file that has just changed may change again with the same timestamp
_LOCK = ".lock"
_WHOLE = 64 * 2**20  # bytes up to which a file is checked in full
_BLOCKS, _BLOCK = 256, 2**16  # blocks that are checked in a larger file, and bytes of a block


def key(*parts: Any) -> str:
    """The name of an entry that is made of these JSON-compatible facts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def entry(name: str, make: Callable[[Path], None], read: Callable[[Path], T]) -> T | None:
    """Reads an entry, which is made first if it is missing or damaged.

    Args:
        name: from `key`.
        make: writes the entry's files into an empty folder.
        read: reads or maps the files of the entry's folder; a later removal does no harm.

    Returns:
        None where nothing can be cached: there is no home, the disk is full, or the limit is 0.

    Raises:
        Exception: what `make` raises, except OSErrors, such as that of a full disk.
    """
    limit = most_bytes()
    root = _root() if limit > 0 else None
    if root is None:
        return None
    folder = root / name
    try:
        with _locked(root / f"{name}{_LOCK}"):
            if not _whole(folder):
                _remove(folder)
                _make(folder, make)
            os.utime(folder)  # the time of its last use
            result = read(folder)
            _evict(root, folder, limit)
    except OSError:
        return None
    return result


def digest(file: Path) -> str:
    """The SHA-256 of a file. For a large file it is cached until the file's size, times or inode change.

    Args:
        file: absolute.
    """
    facts = file.stat()
    if facts.st_size < _LARGE or time.time() - facts.st_mtime < _SETTLED_S:
        return _digest(file)
    name = key("digest", str(file), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)

    def make(folder: Path) -> None:
        own_files.put_new(folder / _DIGEST, _digest(file).encode())

    return entry(name, make, lambda folder: (folder / _DIGEST).read_text(encoding="ascii")) or _digest(file)


def unnamed() -> IO[bytes] | None:
    """A new file without a name, for data that would not fit into memory; None where nothing can be cached."""
    root = _root() if most_bytes() > 0 else None
    try:
        return None if root is None else tempfile.TemporaryFile(dir=root)
    except OSError:
        return None


def array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array of zeros to be overwritten; a large one is in a file without a name, if the cache has room."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    file = unnamed() if size >= _LONG else None
    if file is None:
        return np.zeros(shape, dtype)
    with file:
        try:
            if hasattr(os, "posix_fallocate"):  # a write to a disk that fills up later would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            file.truncate(size)
        except OSError:
            return np.zeros(shape, dtype)
        return np.asarray(np.memmap(file, dtype, "r+", shape=shape))


def _root() -> Path | None:
    """The folder of the cache, made if it is missing; None if that fails or the folder belongs to another user."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "driftline" / "data"
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        own_files.require_folder(root)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return root if os.access(root, os.W_OK) else None


def most_bytes() -> float:
    """The largest number of bytes of all entries together."""
    try:
        return float(os.environ.get(VARIABLE) or _DEFAULT_GIB) * 2**30
    except ValueError:
        return _DEFAULT_GIB * 2**30


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for a lock, and starts again if the lock's file was removed with its entry in the meantime."""
    while True:
        descriptor = own_files.append(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _names(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f"{folder.name}.*{own_files.DRAFT}"):  # by a process that was killed
        _remove(left)
    draft = Path(tempfile.mkdtemp(suffix=own_files.DRAFT, prefix=f"{folder.name}.", dir=folder.parent))
    try:
        make(draft)
        sums = {str(file.relative_to(draft)): _checksum(file) for file in _files(draft)}
        for name in sums:
            _flush(draft / name)
        own_files.put_new(draft / _SEAL, json.dumps(sums).encode())
        os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _whole(folder: Path) -> bool:
    """Whether an entry has all of its files, as they were written."""
    try:
        with own_files.read(folder / _SEAL) as text:
            sums = json.load(text)
        return bool(all(_checksum(folder / name) == checksum for name, checksum in sums.items()))
    except (OSError, ValueError, AttributeError):
        return False


def _checksum(file: Path) -> list[int]:
    """[size, CRC-32]; of a large file, the CRC-32 of blocks that are spread over it."""
    size = file.stat().st_size
    starts = range(0, size, _BLOCK) if size <= _WHOLE else range(0, size - _BLOCK + 1, (size - _BLOCK) // _BLOCKS)
    result = 0
    with file.open("rb") as opened:
        for start in starts:
            opened.seek(start)
            result = zlib.crc32(opened.read(_BLOCK), result)
    return [size, result]


def _flush(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _evict(root: Path, kept: Path, limit: float) -> None:
    """Removes the drafts of killed processes, and the least recently used entries until the rest fits."""
    ages: list[tuple[float, int, Path]] = []
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            if folder.suffix == own_files.DRAFT:
                _remove_if_free(folder, root / f"{folder.name.partition('.')[0]}{_LOCK}")
            elif folder.is_dir() and folder != kept:
                ages.append((folder.stat().st_mtime, _size(folder), folder))
    total = _size(kept) + sum(size for _, size, _ in ages)
    for _, size, folder in sorted(ages):
        if total <= limit:
            return
        if _remove_if_free(folder, root / f"{folder.name}{_LOCK}"):
            total -= size


def _remove_if_free(folder: Path, lock: Path) -> bool:
    """Removes a folder and its lock, unless a process holds the lock."""
    with contextlib.suppress(OSError):
        descriptor = own_files.append(lock)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _names(lock, descriptor):  # removed with the folder, which another process may be making again
                return False
            _remove(folder)
            lock.unlink()
            return True
        finally:
            os.close(descriptor)
    return False


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink()
        else:
            shutil.rmtree(folder)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
