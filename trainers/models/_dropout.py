"""Dropout: the same units are left out in every oracle, in every pack and after any restart.

Every example of every batch has 64 random bits of its own, a function of (seed, round, client, step, place in the
batch), which all trials of a pack share. The upper half chooses the units that dropout leaves out. Where a
loss or an accuracy is taken on all data of a client, and in every evaluation, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from trainers.engine import randomness

_HALF = 32


class Dropout(nn.Module):
    """Leaves each unit out with probability `rate`, and multiplies the others by 1 / (1 - rate).

    Which units are left out is a hash of the example's key, the number of the layer and the unit. Without keys all
    units stay as they are.

    Args:
        rate: in [0, 1).
        number: of the layer in its model, so that layers differ.
    """

    keys: Tensor | None = None
    """(examples,) int32; set for the length of one call by `keyed`."""

    def __init__(self, rate: float, number: int) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be in [0, 1), got dropout={rate}")
        self.rate = rate
        self.number = number
        self._tables: dict[tuple[int, torch.device], Tensor] = {}

    def forward(self, values: Tensor) -> Tensor:
        """The values (examples, ...), some of them 0."""
        if self.keys is None or self.rate == 0:
            return values
        return values * self.factors(self.keys, values[0].numel(), values).view(values.shape)

    def factors(self, keys: Tensor, units: int, like: Tensor) -> Tensor:
        """What units are multiplied by: 0, or 1 / (1 - rate).

        Args:
            keys: (...) int32, of examples.
            units: of each example.
            like: of the type and on the device of the answer.

        Returns:
            (..., units).
        """
        words = _mix(keys[..., None] ^ self._table(units, like.device))
        kept = words >= int(self.rate * 2.0**32) - 2**31
        return kept.to(like.dtype) * (1 / (1 - self.rate))

    def _table(self, units: int, device: torch.device) -> Tensor:
        """(units,) int32, a hash of each unit."""
        key = (units, device)
        if key not in self._tables:
            base = randomness.key(0, self.number, randomness.Purpose.VARIATION)
            words = randomness.hashed(base, np.arange(units, dtype=np.int64)) >> np.uint64(_HALF)
            self._tables[key] = torch.from_numpy(words.astype(np.uint32).view(np.int32)).to(device)
        return self._tables[key]


def own_dropout(module: nn.Module) -> tuple[Dropout, ...]:
    """Puts Dropout in the place of every torch.nn.Dropout of a module, and returns those that leave anything out.

    Args:
        module: changed in place.

    Raises:
        TypeError: a layer with chance of another kind, which would draw from torch's own generator.
    """
    found: list[Dropout] = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout):
                replaced = Dropout(child.p, len(found))
                setattr(parent, name, replaced)
                found.append(replaced)
            elif isinstance(child, nn.modules.dropout._DropoutNd) or (
                isinstance(child, nn.RNNBase) and child.dropout > 0
            ):
                raise TypeError(f"a model's chance must come from torch.nn.Dropout, got {child} as {name}")
    return tuple(layer for layer in found if layer.rate > 0)


@contextmanager
def keyed(layers: tuple[Dropout, ...], keys: Tensor | None) -> Iterator[None]:
    """Gives keys to dropout layers while a model runs.

    Args:
        layers: of the model.
        keys: (examples,) int32; None leaves nothing out.
    """
    for layer in layers:
        layer.keys = keys
    try:
        yield
    finally:
        for layer in layers:
            layer.keys = None


def dropout_keys(words: Tensor) -> Tensor:
    """The int32 keys of examples with 64 random bits each, int64."""
    return (words >> _HALF).to(torch.int32)


def _mix(words: Tensor) -> Tensor:
    """A 32-bit finalizer; shifts are made logical by masks."""
    words = (words ^ (words >> 16 & 0xFFFF)) * 0x7FEB352D
    words = (words ^ (words >> 15 & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return words ^ (words >> 16 & 0xFFFF)
