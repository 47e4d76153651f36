"""How long a study will take: a few rounds of a typical pack of each label, timed here."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np
import torch

from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from trainers.engine.pack import Pack
from trainers.spec import parse

WARM_UP_S = 0.3
MEASURE_S = 1.0


@dataclass(frozen=True)
class LabelEstimate:
    """What was measured for one label.

    Attributes:
        label: The entry.
        width: Trials in the pack that was timed.
        seconds_a_round: Seconds a round of one trial, on one CPU worker.
    """

    label: str
    width: int
    seconds_a_round: float


@dataclass(frozen=True)
class Estimate:
    """What a study will cost on this computer.

    Attributes:
        labels: What was measured for each label.
        trials: Trials, repeats on fresh seeds included.
        rounds: Rounds over all trials.
        seconds: Seconds of training, all workers busy, without the start of Ray.
        workers: Workers assumed: CPU cores over cores a pack.
    """

    labels: tuple[LabelEstimate, ...]
    trials: int
    rounds: int
    seconds: float
    workers: int


def estimate(study: Study, *, measure_s: float = MEASURE_S) -> Estimate:
    """Times a typical pack of each label: configurations drawn at random from its space.

    Args:
        study: A study that has been checked.
        measure_s: Seconds to spend on each label, after a warm-up.
    """
    budget = study.budget
    workers = max(1, int((os.cpu_count() or 1) // study.resources.cpus))
    a_label = budget.trials_per_method + min(budget.confirm, budget.trials_per_method) * budget.seeds
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker does
    try:
        labels = tuple(_time(study, label, measure_s) for label in study.labels)
    finally:
        torch.set_num_threads(threads)
    rounds_a_label = a_label * budget.rounds
    seconds = sum(label.seconds_a_round for label in labels) * rounds_a_label / workers
    return Estimate(labels, a_label * len(labels), rounds_a_label * len(labels), seconds, workers)


def _time(study: Study, label: str, measure_s: float) -> LabelEstimate:
    generator = np.random.default_rng(study.seed)
    packs = study.resources.packs
    wanted = min(8, study.budget.trials_per_method) if packs == "auto" else int(packs)
    configurations = [
        {name: parameter.sample(generator) for name, parameter in study.entry(label).parameters().items()}
        for _ in range(wanted)
    ]
    pack = Pack.from_spec(parse(trial_document(study, label, configurations, study.seed)))
    pack.advance(seconds=WARM_UP_S)
    before, start = pack.round, time.perf_counter()
    pack.advance(seconds=measure_s)
    done = max(pack.round - before, 1)
    return LabelEstimate(label, pack.members, (time.perf_counter() - start) / done / pack.members)
