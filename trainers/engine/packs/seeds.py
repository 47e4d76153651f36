"""Packs whose members have seeds of their own, as configurations that are run again on several seeds.

Every seed has cohorts, batches and an initial model of its own. Members that share a seed are computed as in any pack.
If all seeds can be joined, the whole pack is one lane instead: every client of every trial is a client of one large
cohort, with batches of its own (`RoundBySeed`, `AllTrials`). On a CPU that pays for small models, where a step costs
more in calls than in arithmetic (benchmarks/seeds.py). On accelerators it is done for all sizes, which was not
measured.
"""

from __future__ import annotations

import numpy as np
import torch

from trainers.engine.batches.examples import ExampleSource
from trainers.engine.oracles.oracle import Model
from trainers.engine.packs.build import build_model, by_work, default_device
from trainers.engine.packs.plan import Plan
from trainers.engine.packs.setting import STACKED, PackSetting
from trainers.trial.document import TrialSpec

_MOST_BYTES = 1 << 28
"""Bytes of the joined batches of a round, and of all data of its clients."""
_MOST_NUMBERS = 100_000
"""Numbers in the models of a trial's cohort, up to which seeds are joined on a CPU."""
_UNKNOWN_STEPS = 64  # of a round, if only the method knows how many it takes


def settings(spec: TrialSpec, device: str, plan: Plan | None) -> list[PackSetting]:
    """The settings of a pack: one if its members have one seed or can be joined, otherwise one for each seed.

    Args:
        spec: the trials.
        device: "auto", "cpu", "cuda", ...
        plan: how to compute; None measures which oracle is fastest.
    """
    seeds = dict.fromkeys(spec.seeds)
    apart = len(seeds) == 1 or spec.evaluation is not None or (plan is not None and plan.separate)
    if not apart and joins(spec, device):
        return [PackSetting(spec, device, plan, by_work(spec), joined=True)]
    parts: list[PackSetting] = []
    for seed in seeds:
        members = np.array([member for member in by_work(spec) if spec.seeds[member] == seed])
        parts.append(PackSetting(spec, device, parts[0].plan if parts else plan, members))
    return parts


def joins(spec: TrialSpec, device: str) -> bool:
    """Whether trials of several seeds are computed as one large cohort, unless they sample held-out clients.

    They are if clients take equal numbers of steps on mini-batches of examples, without the server's data, nothing but
    gradients and losses is asked of a round, the model has an oracle that computes all clients of a trial at once, and
    all of it is small enough.

    Args:
        spec: the trials.
        device: "auto", "cpu", "cuda", ...
    """
    plain = spec.pass_end == "joined" and spec.stragglers is None and not spec.method.module.CENTRAL
    measured = set(spec.report) - {"params"} or spec.adaptation is not None
    monitors_loss = spec.schedule.structural.get("monitor", "loss") == "loss"
    if not plain or measured or not monitors_loss or spec.batch_size is None:
        return False
    target = default_device(device)
    _, model = build_model(spec, target)
    numbers = (spec.clients_per_round or model.clients) * model.layout.count
    small = numbers <= _MOST_NUMBERS or target.type != "cpu"
    return STACKED in model.oracles and small and _bytes(spec, model) <= _MOST_BYTES


def _bytes(spec: TrialSpec, model: Model) -> float:
    """Most bytes of the joined batches of a round; infinite if its batches are not selections of examples."""
    source = model.source(spec.seed, spec.batch_size, spec.batching, spec.pass_end, spec.round_batches)
    if not isinstance(source, ExampleSource) or source.vary is not None:
        return float("inf")
    clients, batch_size = spec.clients_per_round or model.clients, spec.batch_size or 0
    row = torch.zeros((1, 1), dtype=torch.int64, device=source.like.device)
    example = sum(tensor.nbytes for tensor in source.gather(row).values())
    examples = int(np.sort(source.sizes)[-clients:].sum())
    steps = max((count or 0 for count in spec.method.values.get("local_steps", ())), default=0) or _UNKNOWN_STEPS
    return spec.members * max(examples * example, clients * batch_size * max(example, steps * row.nbytes))
