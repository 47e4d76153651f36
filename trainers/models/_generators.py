"""The process's own random generators, which the code of a module may draw from: torch's, numpy's and Python's."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class GlobalGenerator:
    """One of the generators.

    Args:
        name: name for errors.
        read: returns its state.
        write: sets its state.
        seed: sets its state by 64 bits; numpy's generator takes the lower half.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    seed: Callable[[int], object]

    def mark(self) -> bytes:
        """The state as bytes, which differ after every draw."""
        state = self.read()
        return state.numpy().tobytes() if isinstance(state, Tensor) else pickle.dumps(state)


def generators(device: torch.device) -> tuple[GlobalGenerator, ...]:
    """Every generator that a module on a device may draw from."""
    sources = [("torch", torch.default_generator)]
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        number = torch.cuda.current_device() if device.index is None else device.index
        sources.append(("torch", torch.cuda.default_generators[number]))
    legacy = np.random  # its global generator is the one that modules use
    return (
        *(GlobalGenerator(name, source.get_state, source.set_state, source.manual_seed) for name, source in sources),
        GlobalGenerator("numpy", legacy.get_state, legacy.set_state, lambda seed: legacy.seed(seed % 2**32)),
        GlobalGenerator("Python", random.getstate, random.setstate, random.seed),
    )


@contextmanager
def seeded(sources: Sequence[GlobalGenerator], seed: int) -> Iterator[None]:
    """Seeds generators, and restores their states on exit.

    Args:
        sources: the generators.
        seed: 64 bits.
    """
    states = [source.read() for source in sources]
    try:
        for source in sources:
            source.seed(seed)
        yield
    finally:
        for source, state in zip(sources, states, strict=True):
            source.write(state)
