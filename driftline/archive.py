"""Packs the files of a program into a compressed tar of plain files, to be sent to a service.

The digest is that of the uncompressed tar, so that it does not depend on the version of the compression library.
Imports only the standard library: clients pack, and workers unpack.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO

MOST_PACKED = 32 * 2**20
"""Largest archive, in bytes."""

MOST_UNPACKED = 128 * 2**20
"""Largest tar in an archive, in bytes."""

MOST_FILES = 10_000

_LONGEST_NAME, _LONGEST_PART = 1000, 255
_BLOCK = 1 << 16


class ArchiveError(ValueError):
    """An invalid archive; the message says which rule is broken."""


def packed(files: Mapping[str, Path]) -> tuple[bytes, str]:
    """Packs files.

    Args:
        files: Files by their names in the archive, which are relative and have slashes.

    Returns:
        The archive and its digest. Both depend only on the files' names, contents and permission to execute.

    Raises:
        ArchiveError: There are too many files, they are too large, or a name is invalid.
    """
    buffer = io.BytesIO()
    if len(files) > MOST_FILES:
        raise ArchiveError(f"must be at most {MOST_FILES} files, got {len(files)}")
    with gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as compressed:
        stream = _Stream(compressed)
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            names = _Names()
            for name, path in sorted(files.items()):
                names.add(name)
                stream.require(path.stat().st_size)
                content = path.read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(content)
                member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
                archive.addfile(member, io.BytesIO(content))
    if (size := buffer.tell()) > MOST_PACKED:
        raise ArchiveError(f"must have at most {_size(MOST_PACKED)} packed, got {_size(size)}: leave data out")
    return buffer.getvalue(), stream.digest.hexdigest()


def unpack(data: bytes, digest: str, folder: Path | None = None) -> None:
    """Checks an archive, and writes its files.

    Args:
        data: The archive.
        digest: The digest that `packed` returned.
        folder: An empty folder for the files; None only checks. After an error it may hold some of them.

    Raises:
        ArchiveError: The archive is damaged or too large, has another digest, or holds more than files in the folder.
        OSError: A file cannot be written.
    """
    if len(data) > MOST_PACKED:
        raise ArchiveError(f"must have at most {_size(MOST_PACKED)}, got {_size(len(data))}")
    stream = _Stream(gzip.GzipFile(fileobj=io.BytesIO(data)))
    names = _Names()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                    raise ArchiveError(f"must hold plain files only, got {member.name[:100]!r}")
                names.add(member.name)
                content = archive.extractfile(member)
                if folder is not None and content is not None:
                    _write(content, folder / member.name, executable=bool(member.mode & 0o100))
        while stream.read(_BLOCK):
            pass
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ArchiveError(f"must be a tar that gzip has compressed: {error}") from error
    except (OverflowError, UnicodeError, ValueError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"has an invalid header: {error}") from error
    if stream.digest.hexdigest() != digest:
        raise ArchiveError(f"must have the digest {digest[:100]}, got {stream.digest.hexdigest()}")


class _Stream:
    """A tar that is written or read: limits its size and computes its digest."""

    def __init__(self, inner: gzip.GzipFile) -> None:
        self._inner = inner
        self._size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        return self._counted(self._inner.read(min(size, MOST_UNPACKED + 1)))

    def write(self, data: bytes) -> int:
        return self._inner.write(self._counted(data))

    def require(self, size: int) -> None:
        """Raises an ArchiveError if `size` more bytes would exceed the limit."""
        if self._size + size > MOST_UNPACKED:
            raise ArchiveError(f"must have at most {_size(MOST_UNPACKED)} unpacked: leave data out")

    def _counted(self, data: bytes) -> bytes:
        self.require(len(data))
        self._size += len(data)
        self.digest.update(data)
        return data


class _Names:
    """The names of an archive's files."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, name: str) -> None:
        """Adds the name of a file, which must be unique and lie below the folder.

        Raises:
            ArchiveError: The name is invalid or taken, or there are too many names.
        """
        path = PurePosixPath(name)
        parts = path.parts
        if not parts or path.is_absolute() or ".." in parts or str(path) != name or "\0" in name:
            raise ArchiveError(f"must hold names below its folder, such as package/train.py, got {name[:100]!r}")
        if len(name) > _LONGEST_NAME or any(len(os.fsencode(part)) > _LONGEST_PART for part in parts):
            raise ArchiveError(f"must hold names that a file can have, got one of {len(name)} characters")
        folders = {str(folder) for folder in path.parents}
        if name in self._files or name in self._folders or folders & self._files:
            raise ArchiveError(f"must hold each name once, got {name[:100]!r} twice")
        self._files.add(name)
        self._folders |= folders
        if len(self._files) > MOST_FILES:
            raise ArchiveError(f"must hold at most {MOST_FILES} files")


def _write(content: IO[bytes], path: Path, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if executable else 0o644)


def _size(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"
