"""Scales inputs by statistics of the clients' training examples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import Rows

SCALES = ("none", "unit", "standardise")
_BYTE = 255.0
_CHUNK = 4096  # examples in double precision at once
_IMAGES = 4  # axes: examples, channels, height, width


@dataclass(frozen=True, eq=False)
class InputScale:
    """(input - shift) / spread, in double precision.

    Args:
        shift: one for each feature, each channel of images, or one for all.
        spread: of the same shape.
    """

    shift: NDArray[np.float64]
    spread: NDArray[np.float64]

    @property
    def digest(self) -> str:
        """A hash that identifies the scale."""
        return hashlib.sha256(repr((self.shift.tolist(), self.spread.tolist())).encode()).hexdigest()

    def scaled(self, inputs: NDArray[Any], rows: Rows, dtype: str) -> NDArray[Any]:
        """The inputs of these rows, scaled.

        Args:
            inputs: (examples, ...).
            rows: of the examples.
            dtype: of the result.
        """
        result = np.empty((len(rows), *inputs.shape[1:]), dtype)
        for start in range(0, len(rows), _CHUNK):
            chunk = inputs[rows[start : start + _CHUNK]].astype(np.float64)
            result[start : start + _CHUNK] = (chunk - self.shift) / self.spread
        return result


def fit(kind: str, inputs: NDArray[Any], rows: Rows, kept: NDArray[np.bool_] | None = None) -> InputScale | None:
    """The scale of inputs; None if they stay as they are.

    Vectors are scaled feature by feature, images (examples, channels, height, width) channel by channel, other
    inputs as a whole. A feature that never changes is shifted only.

    Args:
        kind: one of `SCALES`. `unit` divides bytes by 255, and maps other inputs from their range to [0, 1];
            `standardise` gives them mean 0 and standard deviation 1.
        inputs: (examples, ...).
        rows: of the clients' training examples.
        kept: features that are not scaled; None scales all.

    Examples:
        >>> inputs = np.array([[1.0, 5.0], [3.0, 5.0], [9.0, 0.0]])
        >>> fit("unit", inputs, np.arange(2)).scaled(inputs, np.arange(3), "float64")
        array([[ 0.,  0.],
               [ 1.,  0.],
               [ 4., -5.]])
    """
    if kind == "none":
        return None
    if kind == "unit" and inputs.dtype == np.uint8:
        return InputScale(np.zeros(()), np.array(_BYTE))
    axes = (0,) if inputs.ndim == 2 else (0, 2, 3) if inputs.ndim == _IMAGES else tuple(range(inputs.ndim))
    if kind == "unit":
        chunks = [(chunk.min(axes, keepdims=True), chunk.max(axes, keepdims=True)) for chunk in _chunks(inputs, rows)]
        shift = np.min([low for low, _ in chunks], 0)[0]
        spread = np.max([high for _, high in chunks], 0)[0] - shift
    else:
        count = len(rows) * np.prod([inputs.shape[axis] for axis in axes[1:]])
        shift = sum(chunk.sum(axes, keepdims=True) for chunk in _chunks(inputs, rows))[0] / count
        squares = sum(((chunk - shift) ** 2).sum(axes, keepdims=True) for chunk in _chunks(inputs, rows))
        spread = np.sqrt(squares[0] / count)
    tiny = np.finfo(np.float64).eps * np.abs(shift)  # spreads that are rounding errors
    spread = np.where(spread > tiny, spread, 1.0)
    if kept is not None:
        shift, spread = np.where(kept, 0.0, shift), np.where(kept, 1.0, spread)
    return InputScale(shift, spread)


def _chunks(inputs: NDArray[Any], rows: Rows) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(rows), _CHUNK):
        yield inputs[rows[start : start + _CHUNK]].astype(np.float64)
