"""A column of unknown length, read block by block into one buffer, or into a file if it is large."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.arrow_columns import LONGEST

_ROWS = 2**14  # at once
_SMALL = 2**20  # bytes of a column in memory


class GrowingColumn:
    """Collects rows. Joining an array for each block would need twice the memory in the end."""

    def __init__(self) -> None:
        self._memory = bytearray()
        self._file: IO[bytes] | None = None  # instead of `_memory`
        self._length = 0  # bytes of the file
        self._rows = 0
        self._room = True  # whether the disk has room for a file
        self._type: np.dtype[Any] = np.dtype(np.bool_)
        self._shape: tuple[int, ...] | None = None

    def extend(self, values: list[Any]) -> None:
        """Adds rows: whole numbers, numbers, booleans or strings, or nested lists of them of equal shape.

        Raises:
            ValueError: the type or shape is not that of earlier rows, or differs between rows; the error is a rule.
        """
        rows = _array(values)
        if self._shape is None:
            self._shape, self._type = rows.shape[1:], rows.dtype
        if rows.shape[1:] != self._shape:
            raise ValueError(f"must have examples of shape {self._shape} as before, got {rows.shape[1:]}")
        if (rows.dtype.kind == "U") != (self._type.kind == "U"):
            raise ValueError(f"must hold {_words(self._type)} as before, got {_words(rows.dtype)}")
        together = np.result_type(self._type, rows.dtype)
        if together.kind == "U" and rows.dtype != self._type and together.itemsize > 4 * LONGEST:
            raise ValueError(f"must hold strings of one length, or of at most {LONGEST} characters")
        if together != self._type:
            before = self.array()
            self._memory, self._file, self._type = bytearray(), None, together
            for row in range(0, len(before), _ROWS):
                self._write(before[row : row + _ROWS].astype(together))
        self._write(np.ascontiguousarray(rows, together))
        self._rows += len(rows)

    def array(self) -> NDArray[Any]:
        """All rows, read-only."""
        shape = (self._rows, *(self._shape or ()))
        if self._file is not None:
            return np.asarray(np.memmap(self._file, self._type, "r")).reshape(shape)
        array = np.frombuffer(self._memory, self._type).reshape(shape)
        array.setflags(write=False)
        return array

    def _write(self, rows: NDArray[Any]) -> None:
        if self._file is None and self._room and len(self._memory) + rows.nbytes > _SMALL:
            self._file = disk_cache.unnamed()
            if self._file is not None:
                memory, self._memory, self._length = self._memory, bytearray(), 0
                self._append(memory)
        self._append(rows.tobytes())

    def _append(self, content: bytes | bytearray) -> None:
        if self._file is None:
            self._memory += content
            return
        try:
            self._file.write(content)
            self._file.flush()
            self._length += len(content)
        except OSError:  # the disk is full
            file, self._file, self._room = self._file, None, False
            if self._length:
                self._memory += np.memmap(file, np.uint8, "r", shape=(self._length,)).data
            with suppress(OSError):
                file.close()
            self._memory += content


def _array(values: list[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueError("must have examples of one shape, got lists of different lengths") from error
    if array.dtype.kind == "U":
        lengths = [len(leaf) if isinstance(leaf, str) else -1 for leaf in _leaves(values, array.ndim)]
        if min(lengths) < 0:
            raise ValueError("must hold numbers or strings, got both")
        if min(lengths) < max(lengths) > LONGEST:
            raise ValueError(f"must hold strings of one length, or of at most {LONGEST} characters")
        return array
    narrow = array.dtype.kind in "bif"
    if array.dtype.kind == "f" and (array >= 2.0**63).any():  # NumPy turns such whole numbers into floats beside others
        narrow = not any(isinstance(leaf, int) and leaf >= 2**63 for leaf in _leaves(values, array.ndim))
    if not narrow:
        raise ValueError("must hold numbers of 64 bits or strings, got missing values, objects or larger numbers")
    return array


def _leaves(values: Iterable[Any], axes: int) -> Iterable[Any]:
    for _ in range(axes - 1):
        values = chain.from_iterable(values)
    return values


def _words(kind: np.dtype[Any]) -> str:
    return "strings" if kind.kind == "U" else "numbers"
