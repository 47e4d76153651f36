"""Dropout: the same units are dropped in every oracle, in every pack and after any restart.

Every example of every batch has its own 64 random bits, a function of (seed, round, client, step, position in the
batch), which all trials of a pack share. The upper half chooses the units to drop. Losses and accuracies on all data of
a client, and evaluations, drop no units.
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
    """Drops each unit with probability `rate`, and multiplies the others by 1 / (1 - rate).

    A hash of the example's key, the layer's number, the number of its earlier calls, and the unit decides which units
    are dropped. Without keys no unit is dropped. An example's values lie together, in one row or in consecutive rows.

    Args:
        rate: in [0, 1).
        number: number of the layer in its model, so that layers differ.
    """

    keys: Tensor | None = None
    """(examples,) int32; set by `keyed` for the duration of one call."""
    calls = 0
    """Calls of the layer during that call of the model: a layer used at several places drops other units at each."""

    def __init__(self, rate: float, number: int) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be in [0, 1), got dropout={rate}")
        self.rate = rate
        self.number = number
        self._tables: dict[tuple[int, int, torch.device], Tensor] = {}

    def forward(self, values: Tensor) -> Tensor:
        """The values (examples, ...) after dropout."""
        if self.keys is None or self.rate == 0:
            return values
        factors = self.factors(self.keys, values.numel() // len(self.keys), values, self.calls)
        self.calls += 1
        return values * factors.view(values.shape)

    def factors(self, keys: Tensor, units: int, like: Tensor, call: int = 0) -> Tensor:
        """The factors of units: 0, or 1 / (1 - rate).

        Args:
            keys: (...) int32 keys of examples.
            units: number of units of each example.
            like: a tensor with the type and device of the result.
            call: number of the layer's call.

        Returns:
            (..., units).
        """
        words = _mix(keys[..., None] ^ self._table(units, call, like.device))
        kept = words >= int(self.rate * 2.0**32) - 2**31
        return kept.to(like.dtype) * (1 / (1 - self.rate))

    def _table(self, units: int, call: int, device: torch.device) -> Tensor:
        """(units,) int32, a hash of each unit."""
        key = (units, call, device)
        if key not in self._tables:
            base = randomness.key(call, self.number, randomness.Purpose.VARIATION)
            words = randomness.hashed(base, np.arange(units, dtype=np.int64)) >> np.uint64(_HALF)
            self._tables[key] = torch.from_numpy(words.astype(np.uint32).view(np.int32)).to(device)
        return self._tables[key]


def own_dropout(module: nn.Module) -> tuple[Dropout, ...]:
    """Replaces every torch.nn.Dropout of a module by Dropout, and returns those with a rate above 0.

    Args:
        module: changed in place.
    """
    layers: list[Dropout] = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                replaced = Dropout(child.p, len(layers))
                setattr(parent, name, replaced)
                layers.append(replaced)
    return tuple(layer for layer in layers if layer.rate > 0)


@contextmanager
def keyed(layers: tuple[Dropout, ...], keys: Tensor | None) -> Iterator[None]:
    """Sets the keys of dropout layers while a model runs.

    Args:
        layers: layers of the model.
        keys: (examples,) int32; None is no dropout.
    """
    for layer in layers:
        layer.keys, layer.calls = keys, 0
    try:
        yield
    finally:
        for layer in layers:
            layer.keys, layer.calls = None, 0


def dropout_keys(words: Tensor) -> Tensor:
    """The int32 keys of examples with 64 random bits each, int64."""
    return (words >> _HALF).to(torch.int32)


def _mix(words: Tensor) -> Tensor:
    """A 32-bit finalizer; masks make the shifts logical."""
    words = (words ^ (words >> 16 & 0xFFFF)) * 0x7FEB352D
    words = (words ^ (words >> 15 & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return words ^ (words >> 16 & 0xFFFF)
