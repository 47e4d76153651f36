"""How a pack is computed: what decides the last bits of its numbers, and when it evaluates.

A plan is decided once, stored in every checkpoint and forced when the pack is continued: under the same plan a
restarted pack gives the same curve to the bit, under another one to rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.engine import local
from trainers.engine.oracle import Model, Oracle, RoundBatches

EVALUATION_SHARE = 0.15
LEAST_EVALUATIONS = 20
_GRADIENT_WORK = 3.0  # of a gradient, in forward passes

_MEASURED_STEPS = 8
_REPEATS = 4
_CLEARLY = 1.1  # a later candidate must beat an earlier one by this factor

_chosen: dict[tuple[Any, ...], str] = {}


@dataclass(frozen=True)
class Plan:
    """One way to compute a pack.

    Args:
        oracle: name of the oracle.
        width: number of trials in the pack.
        threads: threads of torch.
        device: type of the device, "cpu" or "cuda".
        dtype: "float32" or "float64".
        eval_every: rounds between evaluations.
    """

    oracle: str
    width: int
    threads: int
    device: str
    dtype: str
    eval_every: int

    def to_json(self) -> dict[str, Any]:
        """The plan as plain types."""
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` gave; keys it does not know are left aside."""
        return Plan(**{field.name: document[field.name] for field in fields(Plan)})


def evaluation_interval(model: Model, step_examples: float, rounds: int) -> int:
    """Rounds between evaluations so that these take at most 15 % of the time.

    It follows from counts, not from a clock, so that all trials of a task evaluate in the same rounds, in any pack and
    on any machine: an evaluation costs its examples, a round at least one gradient, three times its examples. A run
    has at least 20 evaluations all the same.

    Args:
        model: with its test examples.
        step_examples: examples in one step of a cohort.
        rounds: of the trial.
    """
    share = EVALUATION_SHARE / (1 - EVALUATION_SHARE)
    interval = math.ceil(model.test_examples / (share * _GRADIENT_WORK * step_examples))
    return max(1, min(interval, rounds // LEAST_EVALUATIONS))


def fastest_oracle(name: str, model: Model, batches: Callable[[], RoundBatches], params: Tensor) -> str:
    """The name of the oracle that does some local steps in the shortest time here; of near equals the first.

    Measured once a process for each (device, threads, type, model, kind of batch, cohort, width) and kept.

    Args:
        name: of the model.
        model: with its oracles.
        batches: makes typical batches.
        params: (T, 1, P), as wide as the pack.
    """
    typical = batches()
    candidates = {
        one: oracle
        for one, oracle in model.oracles.items()
        if not getattr(oracle, "reference", False)
        and (typical.always_full or not getattr(oracle, "full_batches_only", False))
    }
    if len(candidates) < 2:
        return next(iter(candidates or model.oracles))
    where = (str(params.device), torch.get_num_threads(), params.dtype)
    key = (*where, name, model.layout, typical.always_full, len(typical.clients), params.shape[0])
    if key not in _chosen:
        times = dict.fromkeys(candidates, math.inf)
        for _ in range(_REPEATS):
            for one, oracle in candidates.items():
                times[one] = min(times[one], _measure(oracle, batches(), params))
        best = min(times.values())
        _chosen[key] = next(one for one, spent in times.items() if spent <= _CLEARLY * best)
    return _chosen[key]


def _measure(oracle: Oracle, batches: RoundBatches, params: Tensor) -> float:
    """Seconds of one round of local work: of this thread on a CPU, where other programs disturb the clock."""
    trials = params.shape[0]
    work = local.LocalWork(
        client_lr=torch.full((trials, 1, 1), 1e-3, dtype=params.dtype, device=params.device),
        local_steps=torch.full((trials, 1, 1), _MEASURED_STEPS),
    )
    clock = time.perf_counter if params.is_cuda else time.thread_time
    start = clock()
    local.run(oracle, batches, params, work, np.ones(trials, dtype=bool))
    if params.is_cuda:
        torch.cuda.synchronize(params.device)
    return clock() - start
