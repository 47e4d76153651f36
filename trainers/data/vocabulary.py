"""Numbers in place of strings: each token's place in the sorted vocabulary of all examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError

_CODES = 0x110000  # code points of Unicode


def numbered(parts: Sequence[NDArray[Any]], key_path: str) -> tuple[list[NDArray[Any]], int]:
    """(tokens as numbers from 0 on, in the smallest type that holds them; number of different tokens).

    Args:
        parts: arrays of strings, with one vocabulary for all. Arrays (examples,) are sequences of characters and get
            shape (examples, characters); arrays of more axes hold one token in each place.
        key_path: dotted path of the setting, for errors.

    Raises:
        SpecError: sequences of characters have different lengths.

    Examples:
        >>> numbered([np.array(["ba", "ca"])], "task.inputs")
        ([array([[1, 0],
               [2, 0]], dtype=uint8)], 3)
        >>> numbered([np.array([["the", "tea"], ["the", "ale"]])], "task.inputs")
        ([array([[2, 1],
               [2, 0]], dtype=uint8)], 3)
    """
    if parts[0].ndim == 1:
        codes = _codes(parts, key_path)
        present = np.zeros(_CODES, np.bool_)
        for part in codes:
            present[part] = True
        count = int(present.sum())
        numbers = np.cumsum(present) - 1
        return [numbers.astype(np.min_scalar_type(count))[part] for part in codes], count
    tokens = np.unique(np.concatenate([np.unique(part) for part in parts]))
    kind = np.min_scalar_type(len(tokens))
    return [np.searchsorted(tokens, part).astype(kind) for part in parts], len(tokens)


def _codes(parts: Sequence[NDArray[Any]], key_path: str) -> list[NDArray[np.uint32]]:
    """The code points of strings of one length, (examples, characters) each."""
    width = max(part.dtype.itemsize for part in parts) // 4
    codes = [
        np.ascontiguousarray(part, dtype=np.dtype(f"U{width}")).view(np.uint32).reshape(len(part), width)
        for part in parts
    ]
    for part in codes:
        short = np.flatnonzero(part[:, -1] == 0)
        if len(short):
            length = int(np.count_nonzero(part[short[0]]))
            raise SpecError(
                f"{key_path} must hold strings of one length, got one of {width} characters and one of {length} in row "
                f"{short[0]}: pad them, or give words, for bags of words",
                key_path,
            )
    return codes
