"""A plan: how a pack is computed, which decides the last bits of its numbers, and when it evaluates.

A plan is decided once, stored in every checkpoint and enforced when the pack continues. Under the same plan a restarted
pack gives the same curve to the bit, under another plan up to rounding.

Under a plan that is not `separate`, the trials of a pack are rows of shared matrix products. Products of different
shapes round differently. Even the rows of one product may round differently by position, because the last rows go
through other kernels than the first (torch 2.13 with MKL: in one of seven shapes of matrix products that were tried,
and in one of four shapes of products with a vector). So a trial keeps its bits next to other neighbours or idle slots
only if its slot, the width and the numbers of local steps in all slots stay the same, and no neighbour adds a term that
the pack did not have (clipping, momentum, a proximal pull, other settings of the client optimizer). Otherwise it agrees
up to rounding, which training amplifies.

Oracles that compute one trial after the other (`Oracle.separate`) share no products. Their trials keep their bits in
packs of any width even if the plan is not `separate`, with every method and optimizer (tests/trainers/
test_packs_again.py). On CPUs these are all oracles of networks, unless seeds are joined (`seeds`).

Under a `separate` plan every trial is computed as if it were alone, whole rounds at a time, with the model, the data
and the batches of the pack. Its bits then depend only on the oracle, the number of threads and the processor, not on
its slot, its neighbours or the width. Members that are still the same are therefore trained once (see `sharing`). The
price is that no products are shared. In packs of 8 on one core a round takes 4.4 times as long for quadratics, 3.0
times for softmax regression on 8 x 8 images, 1.6 times on 28 x 28 images, and 0.9 to 1.1 times for networks, which are
computed one by one anyway. With 1 to 32 local steps in one pack, softmax regression takes 2.0 times as long on 8 x 8
images and 1.25 times on 28 x 28 images. On CUDA neither was measured.
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

from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.oracles.frame import Motion
from trainers.engine.oracles.oracle import Model, Oracle, RoundBatches

_BUDGET = 1.0  # seconds for measuring
_MEASURED_STEPS = 50
_UNKNOWN_STEPS = 8  # measured if only the method knows how many steps it takes
_REPEATS = 4
_CLEARLY = 1.1  # a later candidate must beat an earlier one by this factor

_chosen: dict[tuple[Any, ...], str] = {}


@dataclass(frozen=True)
class Plan:
    """One way to compute a pack.

    Args:
        oracle: name of the oracle.
        width: number of slots in the pack; slots without a member are idle.
        threads: number of torch threads.
        device: type of the device, "cpu" or "cuda".
        dtype: the dtype of the trials.
        eval_every: rounds between evaluations, or "auto" for the grid of `evaluation_grid`.
        separate: compute every member as if it were alone, one after the other.
    """

    oracle: str
    width: int
    threads: int
    device: str
    dtype: str
    eval_every: int | str
    separate: bool = False

    def to_json(self) -> dict[str, Any]:
        """The plan as plain types."""
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Plan:
        """Reads a plan from `to_json`. Unknown keys are ignored; keys that an older version lacks get defaults."""
        return Plan(**{field.name: document[field.name] for field in fields(Plan) if field.name in document})


def fastest_oracle(
    name: str,
    dtype: str,
    model: Model,
    batches: Callable[[], RoundBatches],
    params: Tensor,
    steps: int | None = None,
) -> str:
    """The name of the oracle that is fastest at local steps on this machine; among near equals, the first.

    Measured once per process for each (device, threads, type, model, kind of batch, cohort, width, steps), then cached.
    Every candidate first runs once unmeasured, so that the cost of first calls does not count. Measuring takes about a
    second on a CPU. If a single step takes longer, the remaining candidates are skipped, which loses nothing, because
    large steps are all arithmetic. On a GPU every candidate is measured: the first call alone may take longer than a
    second, because it loads libraries. A candidate that fails for any reason drops out: vmap, for example, cannot run
    a module that branches on its data. If all fail, one of their errors is raised, if possible an out-of-memory error,
    for which packs get narrower.

    On a CPU, whether local loops run in example space is not measured but counted (`Oracle.instead_of`), so that two
    runs of one study agree to the bit.

    Oracles differ in what a round costs once and what each step costs, so as many steps are measured as the pack takes.
    Where a second is too short for all of them, the time of the remaining steps is extrapolated.

    Args:
        name: name of the model.
        dtype: the dtype of the trial.
        model: the model with its oracles, the safest first.
        batches: makes typical batches.
        params: (T, 1, P), as wide as the pack.
        steps: local steps of a round, of which at most 50 count; None counts 8.
    """
    typical = batches()
    candidates = {
        candidate: oracle
        for candidate, oracle in model.oracles.items()
        if not oracle.reference and (params.is_cuda or not oracle.accelerators_only)
    }
    most = min(_MEASURED_STEPS, steps or _UNKNOWN_STEPS)
    if not params.is_cuda:
        candidates = _settled(candidates, typical, params, most)
    if len(candidates) < 2:
        return next(iter(candidates or model.oracles))
    where = (str(params.device), torch.get_num_threads(), dtype)
    kind = (name, model.layout, tuple(candidates), typical.always_full, len(typical.clients), params.shape[0], most)
    if (*where, *kind) not in _chosen:
        _chosen[*where, *kind] = _race(candidates, batches, params, most)
    return _chosen[*where, *kind]


def _settled(candidates: Mapping[str, Oracle], batches: RoundBatches, params: Tensor, steps: int) -> dict[str, Oracle]:
    """The candidates; of an oracle and the one that it may replace (`Oracle.instead_of`), only the cheaper remains."""
    left = dict(candidates)
    for name, oracle in candidates.items():
        replaced = oracle.instead_of
        if replaced is not None and replaced in candidates:
            models = params[:1] if oracle.separate else params
            motion = Motion(models, models.new_ones(len(models), 1, 1), None, None, moving=steps > 1, steps=steps)
            del left[name if oracle.frame(batches, motion) is None else replaced]
    return left


def _race(candidates: Mapping[str, Oracle], batches: Callable[[], RoundBatches], params: Tensor, most: int) -> str:
    """The name of the fastest of several oracles."""
    started: dict[str, float] = {}
    failures: list[Exception] = []

    def measured(candidate: str, steps: int) -> float | None:
        """Seconds, or None if the candidate fails, for any reason, because it may run code of plug-ins."""
        try:
            return _measure(candidates[candidate], batches(), params, steps)
        except Exception as error:
            failures.append(error.with_traceback(None))  # the traceback's frames hold tensors
            return None

    for candidate in candidates:
        if not params.is_cuda or measured(candidate, 1) is not None:
            spent = measured(candidate, 1)
            if spent is not None:
                started[candidate] = spent
        if sum(started.values()) > _BUDGET and not params.is_cuda:
            break
    if not started:
        raise next((error for error in failures if isinstance(error, torch.OutOfMemoryError)), failures[0])
    if len(started) < 2:
        return next(iter(started))
    affordable = int(_BUDGET / sum(started.values()))
    steps = max(1, min(most, affordable))
    times = dict.fromkeys(started, math.inf)
    for _ in range(max(1, min(_REPEATS, affordable // steps))):
        for candidate in list(times):
            spent = measured(candidate, steps)
            if spent is None:
                del times[candidate]
            else:
                times[candidate] = min(times[candidate], spent)
    if not times:
        raise failures[0]
    if 1 < steps < most:
        more = (most - steps) / (steps - 1)
        times = {candidate: spent + more * max(0.0, spent - started[candidate]) for candidate, spent in times.items()}
    best = min(times.values())
    return next(candidate for candidate, spent in times.items() if spent <= _CLEARLY * best)


def _measure(oracle: Oracle, batches: RoundBatches, params: Tensor, steps: int) -> float:
    """Seconds of one round of local work. On a CPU, time of this thread, since other programs disturb the clock."""
    trials = params.shape[0]
    client_lr = torch.full((trials, 1, 1), 1e-3, dtype=params.dtype, device=params.device)
    work = LocalWork(StepPlan(client_lr, torch.full((trials, 1, 1), steps)))
    clock = time.perf_counter if params.is_cuda else time.thread_time
    start = clock()
    run_local_steps(oracle, batches, params, work, np.ones(trials, dtype=bool))
    if params.is_cuda:
        torch.cuda.synchronize(params.device)
    return clock() - start
