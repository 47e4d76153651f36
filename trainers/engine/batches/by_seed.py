"""The batches of trials with seeds of their own: every trial has a cohort and batches of its own in each round.

The clients of all trials lie in one order, largest first in each trial. Client m of trial t is client m T + t of a
batch, so that one gather and one gradient serve all trials (`AllTrials`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.batches.examples import ExampleRound
from trainers.engine.batches.mini_batches import cuts
from trainers.engine.oracles.oracle import Batch, DistinctExamples, Group


class RoundBySeed:
    """The batches of one round, whose trials draw from the same data with seeds of their own.

    Args:
        rounds: the batches of each trial; trials with equal seeds may share theirs. All take the same numbers of steps,
            in passes that do not end.

    Attributes:
        clients: (M, T) client ids.
    """

    work: NDArray[np.float64] | None = None
    always_full = False

    def __init__(self, rounds: Sequence[ExampleRound]) -> None:
        self._rounds = rounds
        self._source = rounds[0].source
        self.clients = np.stack([trial.clients for trial in rounds], 1)
        self._rows: Tensor | None = None

    def prepare(self, local_steps: int, limits: NDArray[np.int64] | None = None) -> None:
        """Draws the batches of the first `local_steps` steps at once. Later steps can still be requested."""
        if self._rows is not None and local_steps <= len(self._rows):
            return
        chosen = {id(trial): trial.chosen(local_steps) for trial in self._rounds}
        rows, counts = zip(*(chosen[id(trial)] for trial in self._rounds), strict=True)
        self._rows, self._counts = torch.stack(rows, 2), np.stack(counts, 1)
        self._widest, self._least = int(self._counts.max()), int(self._counts.min())
        if self._least < self._widest:
            slots = np.arange(self._widest) < self._counts[..., None]
            self._weights = self._held(slots / self._counts[..., None])

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step (from 0) for the first `clients` clients."""
        self.prepare(step + 1)
        assert self._rows is not None
        rows = self._rows[step, :clients, :, : self._widest].flatten(0, 1)
        weights = None if self._least == self._widest else self._weights[:clients].flatten(0, 1)
        return (Group(0, clients, self._source.gather(rows), weights, len(self._rounds)),)

    def full(self) -> Batch:
        """All data of every client."""
        sizes, offsets = self._source.sizes[self.clients], self._source.offsets[self.clients]
        groups = []
        for start, stop in pairwise(cuts(np.maximum.accumulate(sizes.max(1)[::-1])[::-1].tolist())):
            own, slots = sizes[start:stop, :, None], np.arange(sizes[start:stop].max())
            rows = (offsets[start:stop, :, None] + np.where(slots < own, slots, 0)).reshape(-1, len(slots))
            weights = None if own.min() == len(slots) else self._held((slots < own) / own).flatten(0, 1)
            data = self._source.gather(torch.as_tensor(rows, device=self._source.like.device))
            groups.append(Group(start, stop, data, weights, len(self._rounds)))
        return tuple(groups)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(T, M) steps of `local_epochs` passes of each client over its own data."""
        return np.stack([trial.epoch_steps(local_epochs) for trial in self._rounds])

    @property
    def full_gradients(self) -> NDArray[np.int64]:
        """(T, M) mini-batches that hold all data of each client."""
        return np.stack([trial.full_gradients for trial in self._rounds])

    @property
    def full_examples(self) -> NDArray[np.int64]:
        """(T, M) examples of each client."""
        return np.stack([trial.full_examples for trial in self._rounds])

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """(T, M) examples in each client's first `steps` batches, (T, M) or (M,)."""
        own = np.broadcast_to(steps, self.clients.T.shape)
        return np.stack([trial.examples(row) for trial, row in zip(self._rounds, own, strict=True)])

    def distinct(self, steps: int) -> DistinctExamples | None:
        """None: the examples of a step are gathered for all trials."""
        return None

    def _held(self, weights: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(weights).to(self._source.like)
