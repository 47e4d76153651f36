"""Downloads a public data set: every file whole and with its published checksum, or not at all.

An interrupted download leaves its bytes beside the file, under a name that ends in .part; the next download continues
from there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

import httpx

from driftline.errors import Conflict, DriftlineError, InvalidSpec, Unavailable
from service.cli.file_errors import cannot_write
from service.cli.public_data import PublicData, PublicFile
from trainers import own_files

_TRIES = 5
_WAIT_S = 1.0  # before the second try; twice as long before each further one
_PIECE = 2**20  # bytes
_UNPACKED = ".unpacked.json"
_ZIP = ".zip"
_ARCHIVES = (".tar.gz", ".tar.bz2", _ZIP)


def fetch(data: PublicData, folder: Path, mirror: str | None, say: Callable[[str], None]) -> None:
    """Puts the files of a data set into a folder; those that are there already are checked and kept.

    Args:
        data: The data set.
        folder: Where its files go; made if it is missing.
        mirror: Address of a folder with files of the same names; None downloads from where they are published.
        say: Prints a line about what happens.

    Raises:
        InvalidSpec: The address is not http(s), or the folder cannot be written to.
        Unavailable: There is no network, or the server does not answer.
        Conflict: A file does not have its checksum, or another process downloads it.
    """
    address = f"{(mirror or data.address).rstrip('/')}/"
    if not address.startswith(("http://", "https://")):
        raise InvalidSpec("--mirror", f"must be an address that begins with http:// or https://, got {mirror!r}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own_files.require_folder(folder)
        for file in data.files:
            path = folder / file.name
            if path.exists() and _matches(path, file):
                say(f"{file.name} is there, with its checksum")
            else:
                _download(f"{address}{file.name}", path, file, say)
            if file.name.endswith(_ARCHIVES):
                _unpack(path, file, say)
    except OSError as error:
        raise cannot_write("--to", folder, error) from error


def _download(url: str, path: Path, file: PublicFile, say: Callable[[str], None]) -> None:
    part = path.with_name(f"{path.name}{own_files.DRAFT}")
    with os.fdopen(own_files.append(part), "ab") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(f"another process is downloading {path}: wait for it") from error
        say(f"{url}: {'going on with' if out.tell() else 'downloading'} {file.name}")
        with httpx.Client(follow_redirects=True, timeout=30.0) as client:
            for number in range(_TRIES):
                reason = _receive(client, url, out)
                if reason is None:
                    break
                if number + 1 < _TRIES:
                    time.sleep(_WAIT_S * 2**number)
            else:
                raise Unavailable(_advice(url, path, file, reason or ""))
        out.flush()
        os.fsync(out.fileno())
    if not _matches(part, file):
        part.unlink()
        raise Conflict(
            f"{url} must have the checksum {file.checksum}, got another file, which was removed: try again, or name "
            "another --mirror"
        )
    os.replace(part, path)
    say(f"{file.name} is whole, {path.stat().st_size / 2**20:.1f} MiB")


def _receive(client: httpx.Client, url: str, out: IO[bytes]) -> str | None:
    """Appends the missing rest of a file; returns None if the answer was complete, otherwise what went wrong."""
    start = out.seek(0, os.SEEK_END)
    headers = {"accept-encoding": "identity", **({"range": f"bytes={start}-"} if start else {})}
    try:
        with client.stream("GET", url, headers=headers) as answer:
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return None  # nothing is missing; the checksum is checked next
            if answer.status_code >= httpx.codes.BAD_REQUEST:
                return f"the server answers {answer.status_code} {answer.reason_phrase}"
            goes_on = answer.headers.get("content-range", "").startswith(f"bytes {start}-")
            if start and not (answer.status_code == httpx.codes.PARTIAL_CONTENT and goes_on):
                out.truncate(0)
            for piece in answer.iter_raw():
                out.write(piece)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    finally:
        out.flush()
    return None


def _advice(url: str, path: Path, file: PublicFile, reason: str) -> str:
    return (
        f"cannot download {url} ({reason}): get it on a computer with a network, put it at {path} "
        f"({file.checksum}) and run the command again, or name a --mirror"
    )


def _matches(path: Path, file: PublicFile) -> bool:
    """Whether a file has its checksum."""
    algorithm, _, digest = file.checksum.partition(":")
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest() == digest


def _unpack(path: Path, file: PublicFile, say: Callable[[str], None]) -> None:
    """Unpacks the files of an archive beside it, without their folders, unless all of them exist already."""
    folder, record = path.parent, path.parent / _UNPACKED
    if _unpacked(folder, record, file):
        say(f"{file.name} is unpacked")
        return
    sizes: dict[str, int] = {}
    try:
        for name, content in _members(path):
            if name.startswith(file.members) and not name.startswith("."):
                sizes[name] = _copy(content, folder / name)
    except (tarfile.TarError, zipfile.BadZipFile) as error:  # with the published checksum, so the disk is at fault
        raise DriftlineError(f"cannot unpack {path}: {error}: remove it, and run the command again") from error
    own_files.put(record, json.dumps({"of": file.checksum, "sizes": sizes}).encode())
    say(f"{file.name} is unpacked: {', '.join(sizes)}")


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of an archive, one after the other: their names without folders, and what they hold."""
    if path.name.endswith(_ZIP):
        with zipfile.ZipFile(path) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    with packed.open(entry) as content:
                        yield Path(entry.filename).name, content
        return
    with tarfile.open(path) as archive:
        for member in archive:
            extracted = archive.extractfile(member) if member.isfile() else None
            if extracted is not None:
                yield Path(member.name).name, extracted


def _unpacked(folder: Path, record: Path, file: PublicFile) -> bool:
    try:
        content: Mapping[str, object] = json.loads(record.read_text(encoding="utf-8"))
        sizes = content["sizes"]
        if content["of"] != file.checksum or not isinstance(sizes, dict):
            return False
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _copy(content: IO[bytes], path: Path) -> int:
    """Writes a file whole or not at all; returns its size."""
    part = path.with_name(f"{path.name}{own_files.DRAFT}")
    part.unlink(missing_ok=True)
    with os.fdopen(own_files.append(part), "ab") as out:
        while piece := content.read(_PIECE):
            out.write(piece)
        size = out.tell()
    os.replace(part, path)
    return size
