"""What a round is made of: its clients and their batches, and what the engine lends the method for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.local.client_optimizer import ClientOptimizer
from trainers.engine.oracles.oracle import Oracle, RoundBatches
from trainers.engine.rounds.central_data import Central
from trainers.engine.rounds.client_memory import CohortMemory
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.fragments import Exchange
from trainers.engine.rounds.quantised import Quantiser


@dataclass(frozen=True)
class Draw:
    """The clients of one round and their batches, the same for all trials unless these have seeds of their own.

    Args:
        batches: batches of the round.
        weights: (M,) weights of the clients in training, with sum 1; (T, M) if they differ between trials.
        share: the cohort's share of these weights of all clients, or (T, 1, 1) of them; 1 if all take part.
        measured: (M,) or (T, M) weights of the clients in metrics and reports, with sum 1; the same tensor as `weights`
            unless the trial trains with others.
        dropped: batches of the clients that the round drops, which take a part of their steps for nothing; None drops
            no client.
    """

    batches: RoundBatches
    weights: Tensor
    share: float | Tensor
    measured: Tensor
    dropped: RoundBatches | None = None


@dataclass(frozen=True)
class RoundContext:
    """One round of all trials of a pack.

    Args:
        draw: the clients.
        oracle: oracle of the model.
        parameters: true number of parameters of the model.
        counters: updated in place.
        alive: (T,) True for trials that have not diverged.
        central: the server's own data; None if it has none.
        memory: what the clients keep, for the method and for their optimizer; None is nothing.
        optimizer: optimizer of the clients' steps; None is gradient descent.
        relative_rates: (T, K) rates of the local steps divided by client_lr (StepPlan); None is 1 throughout.
        quantiser: quantises what clients return; None sends numbers as they are.
        exchange: the fragment of the model that the round exchanges; None is all of it.
    """

    draw: Draw
    oracle: Oracle
    parameters: int
    counters: Counters
    alive: NDArray[np.bool_]
    central: Central | None = None
    memory: CohortMemory | None = None
    optimizer: ClientOptimizer | None = None
    relative_rates: Tensor | None = None
    quantiser: Quantiser | None = None
    exchange: Exchange | None = None
