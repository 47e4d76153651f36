"""A column of unknown length, read block by block into one piece of memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LONGEST = 256  # characters of strings of different lengths: a shorter one takes as much memory as the longest


class GrowingColumn:
    """Collects rows. Joining an array for each block would need twice the memory in the end."""

    def __init__(self) -> None:
        self._memory = bytearray()
        self._type: np.dtype[Any] = np.dtype(np.bool_)
        self._shape: tuple[int, ...] | None = None

    def extend(self, values: list[Any]) -> None:
        """Adds rows: whole numbers, numbers, booleans or strings, or nested lists of them of equal shape.

        Raises:
            ValueError: the rows have another type or shape than those before, or several; the error is a rule.
        """
        rows = _array(values)
        if self._shape is None:
            self._shape, self._type = rows.shape[1:], rows.dtype
        if rows.shape[1:] != self._shape:
            raise ValueError(f"must have examples of shape {self._shape} as before, got {rows.shape[1:]}")
        if (rows.dtype.kind == "U") != (self._type.kind == "U"):
            raise ValueError(f"must hold {_words(self._type)} as before, got {_words(rows.dtype)}")
        together = np.result_type(self._type, rows.dtype)
        if together != self._type:
            if together.kind == "U" and together.itemsize > 4 * _LONGEST:
                raise ValueError(f"must hold strings of one length, or of at most {_LONGEST} characters")
            self._memory = bytearray(self.array().astype(together).tobytes())
            self._type = together
        self._memory += np.ascontiguousarray(rows, together).tobytes()

    def array(self) -> NDArray[Any]:
        """All rows, read-only."""
        array = np.frombuffer(self._memory, self._type).reshape(-1, *(self._shape or ()))
        array.setflags(write=False)
        return array


def _array(values: list[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueError("must have examples of one shape, got lists of different lengths") from error
    if array.dtype.kind == "U":
        leaves: Iterable[Any] = values
        for _ in range(array.ndim - 1):
            leaves = chain.from_iterable(leaves)
        lengths = [len(leaf) if isinstance(leaf, str) else -1 for leaf in leaves]
        if min(lengths) < 0:
            raise ValueError("must hold numbers or strings, got both")
        if min(lengths) < max(lengths) > _LONGEST:
            raise ValueError(f"must hold strings of one length, or of at most {_LONGEST} characters")
    elif array.dtype.kind not in "bif":
        raise ValueError("must hold numbers of 64 bits or strings, got missing values, objects or larger numbers")
    return array


def _words(kind: np.dtype[Any]) -> str:
    return "strings" if kind.kind == "U" else "numbers"
