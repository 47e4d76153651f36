"""Data at an fsspec URL, such as s3://bucket/data.csv: copied into the cache once, and read there.

This and `web_files` are the only places where trainers reach a network, and only for a URL that a document names. On a
user's own computer any URL is read; on a service, within `reading_only`, only URLs that its operator allows.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainers import disk_cache
from trainers.data.url_prefixes import MARK, WEB, allowing
from trainers.data.web_files import WHOLE_S, WebFile, opened, require_size
from trainers.errors import ChangedDataError, MissingDataError, SpecError
from trainers.values import shown

_PIECE = 2**20
_COPY = "copy"  # folder of the copy in a cache entry, beside the cache's own file
_VERSION = ("size", "ETag", "Last-Modified")  # facts of a file by fsspec's names; some file systems have only these
_allowed: ContextVar[tuple[str, ...] | None] = ContextVar("allowed_urls", default=None)


@contextmanager
def reading_only(prefixes: Sequence[str] | None) -> Iterator[None]:
    """Within the block, only URLs that begin with one of the prefixes are read, compared by `url_prefixes`.

    Args:
        prefixes: an empty sequence allows no URL; None changes nothing.
    """
    token = _allowed.set(_allowed.get() if prefixes is None else tuple(prefixes))
    try:
        yield
    finally:
        _allowed.reset(token)


def local_copy(url: str, key_path: str, *, fresh: bool = False) -> Path:
    """A copy of the file or folder at a URL; a process looks for a new version once.

    Args:
        url: of any file system that fsspec and its packages know.
        key_path: dotted path of the setting, for errors.
        fresh: looks for a new version in any case.

    Raises:
        SpecError: the URL has a password in it.
        MissingDataError: there are no such data, they cannot be reached, or there is no cache.
    """
    parts = urlsplit(url)
    if parts.password:
        bare = f"{parts.scheme}{MARK}{parts.hostname}{parts.path}"
        advice = "set it in the environment or the files of the storage's own client"
        raise SpecError(f"{key_path} must be a URL without a password, got one for {shown(bare)}: {advice}", key_path)
    prefixes = _allowed.get()
    try:
        if prefixes is not None:
            allowing(url, prefixes)
    except ValueError as error:
        raise SpecError(f"{key_path} {error}", key_path) from error
    try:
        if fresh:
            _copied.cache_clear()
        path = _copied(url, prefixes)
        if path is not None and not path.exists():  # removed from the cache
            _copied.cache_clear()
            path = _copied(url, prefixes)
    except Exception as error:  # a file system's package may raise any kind
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MissingDataError(
            f"{key_path}: cannot read {shown(url)} ({reason}): download it, and give its path", key_path
        ) from error
    if path is None:
        raise MissingDataError(
            f"{key_path}: no folder to keep {shown(url)} in: set XDG_CACHE_HOME to one that can be written to, with "
            f"room for it within {disk_cache.VARIABLE}, or download it and give its path",
            key_path,
        )
    return path


def changed(key_path: str, expected: str, got: str) -> ChangedDataError:
    """The error for data at a URL whose SHA-256 is not the one in the document.

    Args:
        key_path: dotted path of the setting that names the URL.
        expected: the SHA-256 in the document.
        got: the SHA-256 of the data.
    """
    advice = "they have changed, restore them or begin a new study"
    return ChangedDataError(
        f"{key_path} must lead to data with the SHA-256 {expected:.64}, got {got}: {advice}", key_path
    )


@lru_cache(maxsize=16)
def _copied(url: str, prefixes: tuple[str, ...] | None) -> Path | None:
    if prefixes is not None and urlsplit(url).scheme in WEB:
        with opened(url, prefixes) as file:
            return _of_web(url, file)
    import fsspec

    files, location = fsspec.core.url_to_fs(url)
    root = str(location).rstrip("/")
    facts = files.info(root)
    within = sorted(files.find(root)) if facts["type"] == "directory" else ()
    version = [*map(files.ukey, (location, *within)), *(str(facts.get(name)) for name in _VERSION)]
    bound = None if prefixes is None else _Bound(disk_cache.most_bytes())
    return _kept([url, *version], _name(root), lambda target: _copy(files, root, target, bound))


def _of_web(url: str, file: WebFile) -> Path | None:
    name, version, pieces = _name(urlsplit(url).path), file.version, file.pieces(disk_cache.most_bytes())
    if version is not None:
        return _kept([url, version], name, lambda target: _write(target, pieces))
    temporary = disk_cache.unnamed()
    if temporary is None:
        return None
    with temporary:  # without a version, the hash of the content stands for it
        content = hashlib.sha256()
        for piece in pieces:
            content.update(piece)
            temporary.write(piece)
        temporary.seek(0)
        again = iter(lambda: temporary.read(_PIECE), b"")
        return _kept([url, content.hexdigest()], name, lambda target: _write(target, again))


def _write(target: Path, pieces: Iterable[bytes]) -> None:
    with target.open("xb") as file:
        file.writelines(pieces)


def _name(path: str) -> str:
    name = Path(path).name
    return "data" if name in ("", "..") else name


def _kept(source: list[Any], name: str, save: Callable[[Path], None]) -> Path | None:
    """The entry of the cache for a version of data, which `save` writes if it is missing."""
    failed: list[OSError] = []

    def make(folder: Path) -> None:
        (folder / _COPY).mkdir()
        try:
            save(folder / _COPY / name)
        except OSError as error:
            failed.append(error)
            raise

    copy = disk_cache.entry(disk_cache.key(_COPY, *source), make, lambda folder: folder / _COPY / name)
    if copy is None and failed:
        raise failed[0]
    return copy


class _Bound:
    """Ends a copy that becomes too large or takes too long; counts the bytes of all its files.

    Args:
        most_bytes: of all files.
    """

    def __init__(self, most_bytes: float) -> None:
        self._most_bytes, self._deadline, self._copied = most_bytes, time.monotonic() + WHOLE_S, 0.0

    def count(self, size: float) -> None:
        """Adds bytes that were copied."""
        self._copied += size
        require_size(self._copied, self._most_bytes)
        if time.monotonic() > self._deadline:
            raise OSError(f"must be read within {WHOLE_S:.0f} s, took longer")


def _copy(files: Any, location: str, destination: Path, bound: _Bound | None = None) -> None:
    """Copies a file, or all files below a folder."""
    if files.info(location)["type"] != "directory":
        _get(files, location, destination, bound)
        return
    for file in sorted(files.find(location)):
        relative = Path(file).relative_to(location)
        if ".." in relative.parts:
            raise OSError(f"a file's name leads out of the folder: {relative}")
        target = destination / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        _get(files, file, target, bound)


def _get(files: Any, location: str, destination: Path, bound: _Bound | None) -> None:
    if bound is None:
        files.get_file(location, str(destination))
        return
    bound.count(0)
    with files.open(location, "rb", cache_type="readahead") as source, destination.open("xb") as target:
        while piece := source.read(_PIECE):
            bound.count(len(piece))
            target.write(piece)
