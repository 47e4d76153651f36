"""Data at an fsspec URL, such as s3://bucket/data.csv: copied into the cache once, and read there.

This is the only place where trainers reach a network, and only for a URL that a document names. A service refuses
URLs before they come here (`service.api.allowed_files`).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainers import disk_cache
from trainers.errors import MissingDataError, SpecError
from trainers.values import shown

_MARK = "://"
_COPY = "copy"  # a folder of its own in the entry, beside the cache's file there


def is_url(name: str) -> bool:
    """Whether a path is the URL of data elsewhere."""
    return _MARK in name


def local_copy(url: str, place: str) -> Path:
    """A copy of the file or folder at a URL; a process looks for another version of it once.

    Args:
        url: of any file system that fsspec and its packages know.
        place: dotted path of the setting, for errors.

    Raises:
        SpecError: the URL has a password in it.
        MissingDataError: there are no such data, they cannot be reached, or there is no cache.
    """
    parts = urlsplit(url)
    if parts.password:
        bare = f"{parts.scheme}{_MARK}{parts.hostname}{parts.path}"
        advice = "set it in the environment or the files of the storage's own client"
        raise SpecError(f"{place} must be a URL without a password, got one for {shown(bare)}: {advice}", place)
    try:
        path = _copied(url)
        if path is not None and not path.exists():  # removed from the cache
            _copied.cache_clear()
            path = _copied(url)
    except Exception as error:  # of any kind, from the package of a file system
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MissingDataError(
            f"{place}: cannot read {shown(url)} ({reason}): download it, and give its path", place
        ) from error
    if path is None:
        raise MissingDataError(
            f"{place}: no folder to keep {shown(url)} in: set XDG_CACHE_HOME to one that can be written to, with room "
            f"for it within {disk_cache.VARIABLE}, or download it and give its path",
            place,
        )
    return path


@lru_cache(maxsize=16)
def _copied(url: str) -> Path | None:
    import fsspec

    files, there = fsspec.core.url_to_fs(url)
    name = Path(str(there).rstrip("/")).name
    name = "data" if name in ("", "..") else name
    failed: list[OSError] = []

    def make(folder: Path) -> None:
        (folder / _COPY).mkdir()
        try:
            _copy(files, str(there).rstrip("/"), folder / _COPY / name)
        except OSError as error:
            failed.append(error)
            raise

    copy = disk_cache.entry(disk_cache.key(_COPY, url, files.ukey(there)), make, lambda folder: folder / _COPY / name)
    if copy is None and failed:
        raise failed[0]
    return copy


def _copy(files: Any, there: str, here: Path) -> None:
    """Copies a file, or all files below a folder."""
    if files.info(there)["type"] != "directory":
        files.get_file(there, str(here))
        return
    for file in sorted(files.find(there)):
        place = Path(file).relative_to(there)
        if ".." in place.parts:
            raise OSError(f"a file's name leads out of the folder: {place}")
        target = here / place
        target.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(file, str(target))
