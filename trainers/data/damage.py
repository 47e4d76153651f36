"""Errors of damaged files, in one line with the file's name and the reason."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from trainers.data import archive
from trainers.errors import SpecError

DAMAGE = (*archive.DAMAGE, ArithmeticError, AttributeError, LookupError, TypeError, struct.error)
"""Errors that libraries raise for damaged files."""


class OtherBytes(ValueError):
    """Text in another encoding."""

    def __init__(self) -> None:
        super().__init__("must hold text in UTF-8, got other bytes: save the file as UTF-8")


@contextmanager
def reading(title: str, key_path: str, *more: type[Exception]) -> Iterator[None]:
    """Turns an error from reading a file into one that names the file.

    Args:
        title: name of the file.
        key_path: dotted path of the setting that names the data.
        more: further errors of the library that reads.

    Raises:
        SpecError: the file is damaged.
    """
    errors: tuple[type[BaseException], ...] = (*DAMAGE, *more)
    try:
        yield
    except SpecError:
        raise
    except errors as error:
        plain = isinstance(error, ValueError) and not isinstance(error, UnicodeError)
        reason = str(error) if plain and str(error) else f"{type(error).__name__}: {error}"
        raise SpecError(f"{key_path}: {title}: {reason}", key_path) from error
