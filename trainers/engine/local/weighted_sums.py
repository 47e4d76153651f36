"""Weighted sums of local gradients from their running sums, by Abel summation (see engine/local/loop.py)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class WeightedSums:
    """Collects weighted sums of gradients from their running sums.

    Args:
        gradient_weights: (T, K); None is all ones.
        member_steps: (T,) steps of each trial.
        totals: the running sums that the loop updates, (T, clients, numbers) each.
    """

    def __init__(self, gradient_weights: Tensor | None, member_steps: NDArray[np.int64], totals: list[Tensor]) -> None:
        self.totals = totals
        self.sums: list[Tensor] | None = None
        self.ends: dict[int, list[int]] = {}  # last step -> trials
        self.finished: dict[int, list[Tensor]] = {}  # trial -> its sums, if the loop goes on to overwrite its row
        for row, count in enumerate(member_steps.tolist()):
            self.ends.setdefault(count - 1, []).append(row)
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

    def after(self, step: int, next_width: int) -> None:
        """Records the running sums after a step, before the loop overwrites the rows of finished trials."""
        if self.sums is not None:
            low, high = self.spans[step]
            if high:
                for held, total in zip(self.sums, self.totals, strict=True):
                    held[low:high].addcmul_(total[low:high], self.factors[low:high, step])
            return
        for row in self.ends.get(step, ()):
            if row < next_width:
                self.finished[row] = [total[row].clone() for total in self.totals]

    def result(self) -> list[Tensor]:
        """The weighted sums, shaped like the running sums."""
        if self.sums is not None:
            return self.sums
        for row, answers in self.finished.items():
            for total, held in zip(self.totals, answers, strict=True):
                total[row] = held
        return self.totals
