"""Weighted sums of local gradients from their running sums, by Abel summation (see engine/local/loop.py)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_Row = tuple[int, int, int | None]
"""A trial, and the first and one past the last of some of its clients; None is all that follow."""


class WeightedSums:
    """Collects weighted sums of gradients from their running sums.

    Args:
        gradient_weights: (T, K); None is all ones.
        member_steps: (T,) steps of each trial.
        totals: the running sums that the loop updates, (T, clients, numbers) each.
        own_steps: (T, clients) steps of each client, largest first, where they differ between trials; needs weights 1.
    """

    def __init__(
        self,
        gradient_weights: Tensor | None,
        member_steps: NDArray[np.int64],
        totals: list[Tensor],
        own_steps: NDArray[np.int64] | None = None,
    ) -> None:
        self.totals = totals
        self.sums: list[Tensor] | None = None
        self.ends: dict[int, list[_Row]] = {}  # last step -> trials
        self.finished: dict[_Row, list[Tensor]] = {}  # sums that the loop goes on to overwrite
        for row, count in enumerate(member_steps.tolist()):
            if own_steps is None:
                self.ends.setdefault(count - 1, []).append((row, 0, None))
                continue
            counts, firsts = np.unique(-own_steps[row], return_index=True)
            edges = [*firsts.tolist(), None]
            for steps, first, last in zip((-counts).tolist(), edges, edges[1:], strict=False):
                self.ends.setdefault(steps - 1, []).append((row, first, last))
        if gradient_weights is None:
            return
        theta = gradient_weights.to(device="cpu", dtype=torch.float64).numpy()
        used = np.arange(theta.shape[1]) < member_steps[:, None]
        theta = np.pad(np.where(used, theta, 0.0), ((0, 0), (0, 1)))
        if (theta[:, :-1] == used).all():
            return  # all ones: the running sum is the answer
        jumps = np.where(used, theta[:, :-1] - theta[:, 1:], 0.0)
        self.factors = torch.as_tensor(jumps).to(totals[0])[:, :, None, None]
        self.spans = [
            (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0) for rows in map(np.flatnonzero, jumps.T)
        ]
        self.sums = [torch.zeros_like(total) for total in totals]

    def after(self, step: int, next_width: int, next_busy: int) -> None:
        """Records the running sums after a step, before the next step overwrites sums of finished trials and clients.

        Args:
            step: from 0.
            next_width: number of the first trials that take part in the next step.
            next_busy: number of the first clients that take part in it.
        """
        if self.sums is not None:
            low, high = self.spans[step]
            if high:
                for weighted, total in zip(self.sums, self.totals, strict=True):
                    weighted[low:high].addcmul_(total[low:high], self.factors[low:high, step])
            return
        for row, first, last in self.ends.get(step, ()):
            if row < next_width and first < next_busy:
                self.finished[row, first, last] = [total[row, first:last].clone() for total in self.totals]

    def result(self) -> list[Tensor]:
        """The weighted sums, shaped like the running sums."""
        if self.sums is not None:
            return self.sums
        for (row, first, last), answers in self.finished.items():
            for total, finished in zip(self.totals, answers, strict=True):
                total[row, first:last] = finished
        return self.totals
