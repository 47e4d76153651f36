"""The local steps of a round: how many, at which rates, and with which weights in the clients' pseudo-gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.oracles.oracle import RoundBatches
from trainers.trial.passes import part_of


@dataclass(frozen=True)
class StepPlan:
    """Rates, weights and numbers of the local steps of a round.

    Step k goes from y_k to y_k - client_lr r_k d_k, and its direction d_k counts w_k r_k in the pseudo-gradient, with r
    the relative rates and w the gradient weights. So with all weights 1 a client's model moves by client_lr times its
    pseudo-gradient, and nothing is divided by client_lr.

    Args:
        client_lr: (T, 1, 1), at least 0; 0 takes all gradients at the start.
        local_steps: (T, 1, 1) integers, at least 1; not needed with gradient_weights, None with local_epochs.
        local_epochs: passes over each client's own data, instead of local_steps, with all weights 1.
        gradient_weights: (T, K), padded with zeros. The last positive weight marks the last step. None is all ones.
        relative_rates: (T, K) on the CPU, at least 0, from the schedule (Schedule.relative_rates), with a column for
            every step that any trial takes; None is 1 throughout. The cohort fills them in.
    """

    client_lr: Tensor
    local_steps: Tensor | None = None
    local_epochs: int | None = None
    gradient_weights: Tensor | None = None
    relative_rates: Tensor | None = None

    def at(self, relative_rates: Tensor) -> StepPlan:
        """The plan at the rates that a schedule gives its steps.

        Where only the last gradient counts, as in first-order MAML, its relative rate is 1: this step moves nothing.

        Args:
            relative_rates: (T, K) on the CPU.
        """
        if self.gradient_weights is not None:
            positive = self.gradient_weights.cpu() > 0
            alone = np.flatnonzero(positive.sum(1) == 1)
            relative_rates = relative_rates.clone()
            relative_rates[alone, last_step(self.gradient_weights)[alone] - 1] = 1
        return replace(self, relative_rates=relative_rates)

    @cached_property
    def moves(self) -> bool:
        """Whether any client moves."""
        return bool(self.client_lr.any())

    @cached_property
    def largest_rate(self) -> float:
        """The largest rate of a single trial's steps."""
        return float(self.client_lr) * (1.0 if self.relative_rates is None else float(self.relative_rates.max()))

    def planned(self, batches: RoundBatches) -> NDArray[np.int64]:
        """(T,) number of steps of each trial; with local_epochs, the largest number of any client.

        Clients that take a part of their work take the first of these steps, at the same rates as all others.

        Args:
            batches: batches of the round.

        Raises:
            ValueError: local_steps, gradient_weights and local_epochs are all None, or local_epochs is not alone.
        """
        if self.local_epochs is not None:
            if self.local_steps is not None or self.gradient_weights is not None:
                raise ValueError("local_epochs must be the only one of local_steps, gradient_weights and local_epochs")
            return np.full(len(self.client_lr), batches.epoch_steps(self.local_epochs).max())
        if self.gradient_weights is not None:
            return last_step(self.gradient_weights)
        if self.local_steps is None:
            raise ValueError("one of local_steps, gradient_weights and local_epochs must be given, got none")
        return self.local_steps.cpu().numpy().reshape(-1)

    def limits(self, batches: RoundBatches) -> NDArray[np.int64] | None:
        """Most steps of each client, largest first: (M,) of all trials, or (T, M); None if all clients take all steps.

        Args:
            batches: batches of the round.

        Raises:
            ValueError: clients take a part of the work, and gradients have weights by step.
        """
        if self.local_epochs is not None:
            if batches.work is None:
                return batches.epoch_steps(self.local_epochs)
            # monotone in the product that sorts the clients, so that the limits are sorted too, despite rounding
            return part_of(batches.work * batches.epoch_steps(1), self.local_epochs)
        if batches.work is None:
            return None
        if self.gradient_weights is not None:
            raise ValueError("gradient_weights must be left out where clients take a part of the steps")
        limits = part_of(batches.work, self.planned(batches)[:, None])
        return limits[0] if len(limits) == 1 else limits

    def steps(self, batches: RoundBatches) -> NDArray[np.int64]:
        """(T, M) steps that each client takes."""
        planned, limits = self.planned(batches)[:, None], self.limits(batches)
        shape = len(planned), len(batches.clients)
        return np.broadcast_to(planned if limits is None else np.minimum(planned, limits), shape)

    def relative(self, step: int, like: Tensor) -> Tensor | float:
        """(T, 1, 1) rate of a step (from 0), divided by client_lr, with the type and device of `like`."""
        return 1.0 if self.relative_rates is None else self.relative_rates[:, step].to(like).view(-1, 1, 1)

    def relative_sums(self, steps: NDArray[np.int64], like: Tensor) -> Tensor:
        """(T, M, 1) sums of the relative rates of each client's first `steps` (T, M) steps."""
        counts = torch.tensor(steps, device=like.device)
        if self.relative_rates is None:
            return counts.to(like).unsqueeze(-1)
        sums = torch.nn.functional.pad(self.relative_rates.to(like).cumsum(1), (1, 0))
        return sums.gather(1, counts).unsqueeze(-1)


def last_step_only(local_steps: Tensor) -> Tensor:
    """The gradient weights 0, ..., 0, 1 of first-order MAML, (T, largest number of steps).

    Args:
        local_steps: (T, 1, 1) integers, at least 1.
    """
    last = local_steps.view(-1, 1) - 1
    return (torch.arange(int(last.max()) + 1) == last).to(torch.float64)


def last_step(gradient_weights: Tensor) -> NDArray[np.int64]:
    """(T,) number of local steps for gradient weights: the position, from 1, of the last positive weight.

    Args:
        gradient_weights: (T, K), at least 0.
    """
    positive = gradient_weights.cpu().numpy() > 0
    return np.asarray(positive.shape[1] - positive[:, ::-1].argmax(1))
