"""An output folder: the study that it belongs to, the lock of the process that works in it, and the result files."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.study.spec import Study
from driftline.study.theory_spaces import adopted
from service.embedded.moved_folder import ARTIFACTS
from service.embedded.moved_folder import DATABASE as MLFLOW_DATABASE
from service.embedded.program_files import DRAFT as FILES_DRAFT
from service.embedded.program_files import FILES, TRIALS
from service.file_locks import acquire
from service.sqlite_address import sqlite_url
from service.store.store import Store
from trainers import shown
from trainers.own_files import DRAFT, put, read, require_folder, require_plain, update

DATABASE = "driftline.db"
LOCK = ".lock"
LOG = "driver.log"
CHECKPOINTS = "checkpoints"
_KEYS_NAMED = 3


class Folder:
    """The output folder of one study, locked by this process until it is closed.

    Args:
        path: The folder; created if it does not exist.
        create: If False, the folder must hold a study already.

    Attributes:
        path: The folder.
        store: Its database.

    Raises:
        NotFound: It holds no study, and `create` is False.
        InvalidSpec: It cannot be written to, or holds files that are not Driftline's.
        Conflict: Another process works in it.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        database = path / DATABASE
        try:
            sqlite_url(database)
        except ValueError as error:
            raise InvalidSpec("out", str(error)) from None
        try:
            if not database.is_file():
                _refuse_others(path, create)
            path.mkdir(parents=True, exist_ok=True)
            require_own(path)
            self._lock = _lock(path)
        except OSError as error:
            raise InvalidSpec(
                "out",
                f"must be a folder to write into, got {error.filename or path} ({error.strerror}): choose another one",
            ) from error
        try:
            _remove_drafts(path)
            self.store = Store(database)
        except BaseException:
            self._lock.close()
            raise

    def claim(self, study: Study) -> None:
        """Makes this the folder of a study, which may since have been extended.

        Raises:
            InvalidSpec: The folder belongs to another study; names the keys that differ.
        """
        fingerprint = study.fingerprint()
        if self.store.facts.setdefault("fingerprint", fingerprint) == fingerprint:
            return
        problem = f"{self.path} must be empty or hold this very study"
        stored = next(iter(self.store.studies.find(limit=1)), None)
        if stored is None:
            raise InvalidSpec("out", f"{problem}, got the results of another one: choose another folder")
        differences = dict(_differences("", stored.study.to_json(), adopted(study, stored.study).to_json()))
        if not differences:  # it was extended to this budget
            return
        texts = [f"{key} is {shown(old)} there, not {shown(new)}" for key, (old, new) in differences.items()]
        if len(texts) > _KEYS_NAMED:
            texts[_KEYS_NAMED:] = [f"and {len(texts) - _KEYS_NAMED} more"]
        way = "choose another folder"
        if options := _extension(differences):
            way = f"extend it with  driftline extend {shlex.quote(str(self.path))} {options}  or {way}"
        raise InvalidSpec("out", f"{problem}, but {', '.join(texts)}: {way}")

    def keep_source(self, text: str) -> None:
        """Stores the text of the study's file, unless the folder has one already."""
        if not (self.path / "study.yaml").exists():
            put(self.path / "study.yaml", text.encode())

    def close(self) -> None:
        """Closes the database and unlocks the folder."""
        self.store.close()
        self._lock.close()


def _refuse_others(path: Path, create: bool) -> None:
    if path.exists() and not path.is_dir():
        raise InvalidSpec("out", f"must be a folder, got the file {path}: choose another one")
    if not create:
        raise NotFound(f"no study in {path}: name a folder that `driftline run` wrote, or run a study into it")
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK) if path.exists() else []
    if foreign:
        raise InvalidSpec(
            "out",
            f"{path} must be empty or hold this very study, got other files ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}): choose another folder",
        )


def require_own(path: Path) -> None:
    """Checks that nothing written into an output folder, also by libraries, can end up elsewhere.

    Raises:
        OSError: The folder belongs to another user, or holds a link where a file or folder of Driftline's should be.
    """
    require_folder(path)
    for name in (DATABASE, MLFLOW_DATABASE):
        for end in ("", "-wal", "-shm", "-journal"):
            require_plain(path / f"{name}{end}")
    require_plain(path / LOG)
    for name in (FILES, FILES_DRAFT, TRIALS):  # only the folders themselves: a program may make links inside
        _require_no_link(path / name)
    for name in (CHECKPOINTS, ARTIFACTS):
        for folder, folders, files in os.walk(path / name):
            for inside in ("", *folders, *files):
                _require_no_link(Path(folder, inside))


def put_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by name, each whole or not at all."""
    for name, data in files.items():
        put(folder / name, data)


def is_in_use(path: Path) -> bool:
    """Whether a process works in an output folder."""
    try:
        with read(path / LOCK) as file:
            return not acquire(file, shared=True)
    except FileNotFoundError:  # a copy of the folder
        return False


def _differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The keys in which two studies differ, with the value in each; None where a study lacks the key."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            if name != "resources" or key:  # resources change no result
                yield from _differences(f"{key}.{name}" if key else name, old.get(name), new.get(name))
    elif key == "methods":
        yield from _differences(key, *({entry["label"]: entry for entry in entries} for entries in (old, new)))
    elif old != new:
        yield key, (old, new)


def _extension(differences: dict[str, tuple[Any, Any]]) -> str:
    """The options of `driftline extend` that make up for these differences; "" if no extension does."""
    options = {"budget.trials_per_method": "--trials", "budget.seeds": "--seeds"}
    if not all(key in options and new > old for key, (old, new) in differences.items()):
        return ""
    return " ".join(f"{options[key]} {new}" for key, (_, new) in differences.items())


def _require_no_link(entry: Path) -> None:
    if entry.is_symlink():
        raise OSError(errno.ELOOP, f"is a link to {os.readlink(entry)!r}: remove the link", str(entry))


def _lock(path: Path) -> IO[str]:
    file = update(path / LOCK)
    if not acquire(file):
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        if holder == f"process {os.getpid()}":
            raise Conflict(f"{path} must be free, but another client of this process works in it: close() that one")
        raise Conflict(f"{path} must be free, but {holder} works in it: wait until it ends")
    file.truncate(0)
    file.write(f"process {os.getpid()}")
    file.flush()
    return file


def _remove_drafts(path: Path) -> None:
    """Removes files that a killed process was writing."""
    for draft in path.glob(f".*{DRAFT}"):
        with contextlib.suppress(OSError):
            draft.unlink()
