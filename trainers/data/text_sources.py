"""Texts of a user: a file, or the .txt files of a folder. And Shakespeare's plays, with a source for each role."""

from __future__ import annotations

import gzip
import json
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from trainers.data.folder import VARIABLE, find, locate
from trainers.data.remote import local_copy
from trainers.data.url_prefixes import is_url
from trainers.errors import MissingDataError, SpecError
from trainers.values import shown

SHAKESPEARE = "shakespeare/shakespeare_speeches.jsonl.gz"
_MOST_BYTES = 2**30  # of all texts together
_SUFFIX = ".txt"


@dataclass(frozen=True)
class TextSource:
    """A text, which is a client under the natural partition.

    Args:
        name: for errors.
        text: UTF-8.
    """

    name: str
    text: bytes


@dataclass(frozen=True)
class TextPlace:
    """Where texts are.

    Args:
        path: absolute, of a file or folder; of the speeches of Shakespeare if `roles`.
        place: dotted path of the setting, for errors.
        roles: whether it holds speeches.
    """

    path: Path
    place: str
    roles: bool

    @property
    def single(self) -> bool:
        """Whether there is one source, whatever the texts are."""
        return not self.roles and self.path.is_file()

    def stamp(self) -> Hashable:
        """A value that changes when a text changes, or another one is added."""
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in self._files())

    def read(self) -> list[TextSource]:
        """The texts, sorted by name; roles in the order in which they first speak.

        Raises:
            SpecError: the texts are too large, or a file is empty or not UTF-8 text.
        """
        if self.roles:
            return _roles(self.path)
        files = self._files()
        size = sum(file.stat().st_size for file in files)
        if size > _MOST_BYTES:
            raise SpecError(f"{self.place} must hold at most {_MOST_BYTES} bytes of text, got {size}", self.place)
        return [TextSource(self._name(file), self._text(file)) for file in files]

    def _files(self) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        files = sorted(file for file in self.path.rglob(f"*{_SUFFIX}") if file.is_file())
        if not files:
            raise SpecError(f"{self.place} must hold {_SUFFIX} files, got none in {self.path.name}", self.place)
        for file in files:
            if not file.resolve().is_relative_to(self.path):
                link = file.relative_to(self.path)
                raise SpecError(f"{self.place} must hold its files, got a link out of it: {link}", self.place)
        return files

    def _name(self, file: Path) -> str:
        return file.name if file == self.path else str(file.relative_to(self.path))

    def _text(self, file: Path) -> bytes:
        text = file.read_bytes()
        name = self._name(file)
        if not text:
            raise SpecError(f"{self.place} must hold text, got an empty file: {name}", self.place)
        try:
            text.decode()
        except UnicodeDecodeError as error:
            where = f"byte {error.start} of {name} is not"
            raise SpecError(
                f"{self.place} must hold text in UTF-8, but {where}: save it as UTF-8", self.place
            ) from None
        if (zero := text.find(0)) >= 0:
            raise SpecError(
                f"{self.place} must hold text, got a binary file: byte {zero} of {name} is zero", self.place
            )
        return text


def text_place(name: str | None, key_path: str) -> TextPlace:
    """Where the texts of a document are.

    Args:
        name: the path in the document: absolute, from the current directory, or from the data folder; or a URL; None
            is Shakespeare.
        key_path: dotted path of the setting.

    Raises:
        MissingDataError: there is no such file or folder.
    """
    if name is None:
        return TextPlace(find(SHAKESPEARE), key_path, roles=True)
    path = local_copy(name, key_path) if is_url(name) else locate(name, folders=True)
    if path is None:
        where = "" if Path(name).is_absolute() else f" in the current directory or in ${VARIABLE}"
        advice = f"give its path or set {VARIABLE}; a service looks on its own computer"
        raise MissingDataError(f"{key_path}: no file or folder {shown(name)}{where}: {advice}", key_path)
    return TextPlace(path, key_path, roles=False)


def _roles(path: Path) -> list[TextSource]:
    """The speeches of each role of each play, one after another, with a line break after each."""
    speeches: dict[tuple[str, str], list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            speech = json.loads(line)
            speeches.setdefault((speech["play"], speech["speaker"]), []).append(speech["text"])
    return [
        TextSource(f"{role} in {play}", "".join(f"{text}\n" for text in texts).encode())
        for (play, role), texts in speeches.items()
    ]
