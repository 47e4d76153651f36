"""Flat parameters: where each tensor of a model lies in one row of P numbers.

A model is a tensor (..., P): (P,) alone, (M, P) for a cohort's replicas, (T, M, P) for a pack of T trials. Offsets and
P are rounded up to 16 numbers, so that every tensor starts on a cache line; the pads are zero and stay zero. Bytes and
counts come from the true number of parameters, never from P.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNMENT = 16


def aligned(count: int) -> int:
    """The smallest multiple of 16 that holds `count` numbers.

    Examples:
        >>> [aligned(count) for count in (0, 1, 16, 17)]
        [0, 16, 16, 32]
    """
    return -(-count // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Entry:
    """One tensor inside the row.

    Args:
        name: name of the tensor.
        shape: its shape.
        offset: position of its first number in the row, a multiple of 16.
        row: stride of its second-to-last dimension; above shape[-1] if its rows are padded.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    row: int

    @property
    def count(self) -> int:
        """True number of parameters, without pads."""
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Numbers that it occupies, inner pads included."""
        return math.prod(self.shape[:-1]) * self.row


@dataclass(frozen=True)
class Layout:
    """The order and place of all tensors of a model.

    Args:
        entries: the tensors, in the order of their offsets.
        size: P, the length of a row, a multiple of 16.

    Examples:
        >>> layout = Layout.of({"weight": (2, 3), "bias": (2,)})
        >>> layout.count, layout.size, [entry.offset for entry in layout.entries]
        (8, 32, [0, 16])
        >>> layout.vector(layout.row(torch.arange(8.0))).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """

    entries: tuple[Entry, ...]
    size: int

    @staticmethod
    def of(shapes: Mapping[str, tuple[int, ...]], padded_rows: Collection[str] = ()) -> Layout:
        """The layout of tensors with the given shapes, in the given order.

        Args:
            shapes: name -> shape.
            padded_rows: names of tensors whose last dimension is also padded to a multiple of 16.
        """
        entries: list[Entry] = []
        offset = 0
        for name, shape in shapes.items():
            last = shape[-1] if shape else 1
            row = aligned(last) if name in padded_rows else last
            entry = Entry(name, tuple(shape), offset, row)
            entries.append(entry)
            offset += aligned(entry.extent)
        return Layout(tuple(entries), offset)

    @property
    def count(self) -> int:
        """True number of parameters, without pads."""
        return sum(entry.count for entry in self.entries)

    def views(self, params: Tensor) -> dict[str, Tensor]:
        """The tensors of a model as views of its row.

        Args:
            params: (..., P) with unit stride in the last dimension.

        Returns:
            name -> (..., *shape).
        """
        views = {}
        for entry in self.entries:
            stretch = params[..., entry.offset : entry.offset + entry.extent]
            rows = stretch.view(*params.shape[:-1], *entry.shape[:-1], entry.row)
            views[entry.name] = rows[..., : entry.shape[-1]] if entry.shape else rows[..., 0]
        return views

    def vector(self, params: Tensor) -> Tensor:
        """The true parameters in order, without pads.

        Args:
            params: (..., P).

        Returns:
            (..., count).
        """
        return torch.cat([view.reshape(*params.shape[:-1], -1) for view in self.views(params).values()], -1)

    def row(self, vector: Tensor) -> Tensor:
        """The row that holds the given true parameters; the inverse of `vector`.

        Args:
            vector: (..., count).

        Returns:
            (..., P), pads zero.

        Raises:
            ValueError: the vector does not have `count` numbers.
        """
        if vector.shape[-1] != self.count:
            raise ValueError(f"a model of {self.count} parameters must get as many numbers, got {vector.shape[-1]}")
        params = vector.new_zeros((*vector.shape[:-1], self.size))
        start = 0
        for entry, view in zip(self.entries, self.views(params).values(), strict=True):
            view.copy_(vector[..., start : start + entry.count].reshape(view.shape))
            start += entry.count
        return params
