"""Estimates what a study will cost on this computer: times some rounds of a typical pack of each label.

The packs train in their own process, for at most `TRAINING_S` seconds and with at most `MOST_BYTES` of additional
memory. Then the process is ended; the speed of labels that it has not timed is unknown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from driftline.wire.budgets import StudyEstimate
from service.api.check_process import limit_memory
from service.driver.search.actions import SearchPlan
from service.driver.search.policy import packs
from service.driver.search.study_plan import decided
from service.samplers.allowed import first_allowed

if TYPE_CHECKING:
    from trainers import Pack, TrialSpec  # with torch, which the parent does not need

START_S = 60.0
"""Seconds that the process gets to load its modules and the data."""

TRAINING_S = 5.0
"""Seconds that it may train, all labels together."""

MOST_BYTES = 4 * 2**30
"""Memory that training may take; on a small computer half of its physical memory. Enforced on Linux only."""

AROUND, PACK = 4.0, 0.07
"""What a study takes around its packs (Ray, workers, files, MLflow), and a pack around its training (handed out, built,
reported), as multiples of the time in which a process loads torch and the data. All these depend on the machine and on
its other programs in the same way. Measured with benchmarks/whole_product.py."""

AFTER_S = 0.01
"""Seconds that a trial adds at the end: results, files, MLflow."""

_WARM_UP_S = 0.3
_MEASURE_S = 1.0
_READY = "ready"


@dataclass(frozen=True)
class LabelSpeed:
    """What was measured for one label.

    Attributes:
        label: The entry's label.
        width: Trials in the pack that was timed; 0 if none was.
        seconds_a_round: Seconds per round of one trial, on one CPU worker; None if unknown.
        why: Why it is unknown.
    """

    label: str
    width: int = 0
    seconds_a_round: float | None = None
    why: str = ""

    def text(self) -> str:
        """The speed in words."""
        if self.seconds_a_round is None:
            return f"unknown: {self.why}"
        return f"{1000 * self.seconds_a_round:.2f} ms a round of one trial, timed in packs of {self.width}"


def estimate(study: Study, *, training_s: float = TRAINING_S, most_bytes: int = MOST_BYTES) -> StudyEstimate:
    """Times a typical pack of each label: configurations drawn at random from its space.

    Args:
        study: A study that has been checked.
        training_s: Seconds after which the process that trains is ended.
        most_bytes: Memory that it may take for training.
    """
    budget, cpus = study.budget, study.resources.cpus
    workers = max(1, int((os.cpu_count() or 1) // cpus))
    ready_s, measured = _measured(study, training_s, most_bytes)
    plan = decided(budget, study.resources, study.sampler)
    number = packs(SearchPlan.of(study.labels, budget, plan))
    trials = budget.trials * len(study.labels)
    around = AROUND * ready_s + AFTER_S * trials
    unknown = f"no round was done in the {training_s:g} s that training may take"
    labels = [measured.get(label) or LabelSpeed(label, why=unknown) for label in study.labels]
    rounds = budget.rounds_of_trials
    known = [label.seconds_a_round for label in labels if label.seconds_a_round is not None]
    work = sum(known) * rounds if len(known) == len(labels) else None
    return StudyEstimate(
        trials=trials,
        packs=number,
        rounds=rounds * len(labels),
        cpu_hours=None if work is None else work * cpus / 3600,
        seconds=None if work is None else around + training_seconds(work + PACK * ready_s * number, number, workers),
        rests_on=[
            "trials and rounds: the budget, if no trial diverges",
            *(f"{label.label}: {label.text()}" for label in labels),
            *_branches(study),
            f"time: {workers} CPU workers of this computer; {around:.0f} s of it for the start, files and MLflow",
        ],
    )


def _branches(study: Study) -> list[str]:
    """Which labels may take less time, because their trials share rounds."""
    labels = ", ".join(entry.label for entry in study.methods if entry.branching)
    alone = f"branches: the trials of {labels} as if each were trained alone; rounds that they share take less"
    return [alone] if study.budget.branches > 1 else []


def training_seconds(work: float, number: int, workers: int) -> float:
    """Seconds from the first pack's start to the last one's end. The first runs alone, because it decides the plan.

    Args:
        work: Seconds in which one worker would train all packs.
        number: Number of packs.
        workers: Number of workers.

    Examples:
        >>> training_seconds(50, 5, 2)
        30.0
    """
    return work / number * (1 + -(-(number - 1) // workers))


def _measured(study: Study, training_s: float, most_bytes: int) -> tuple[float, Mapping[str, LabelSpeed]]:
    """How long the process took to load everything, and what it measured before it ended or was killed."""
    command = [sys.executable, "-m", "service.embedded.timing", str(training_s), str(most_bytes)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    timer = threading.Timer(START_S, process.kill)
    timer.start()
    measured = {}
    began = time.monotonic()
    ready_s = START_S
    try:
        with process.stdin:
            json.dump(study.to_json(), process.stdin)
        for line in process.stdout:
            if line.strip() == _READY:
                ready_s = time.monotonic() - began
                timer.cancel()
                timer = threading.Timer(training_s, process.kill)
                timer.start()
            else:
                label = LabelSpeed(**json.loads(line))
                measured[label.label] = label
    except BrokenPipeError:
        pass  # it has ended already: nothing is known
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
    return ready_s, measured


def _train(document: Any, training_s: float, most_bytes: int) -> None:
    """What the process does: prints `_READY` when it begins to train, then a line for each label."""
    import torch

    from trainers import Pack, parse

    study = Study.from_json(document)
    specs = {label: parse(_document(study, label)) for label in study.labels}
    torch.set_num_threads(1)  # as a worker does
    limit = min(most_bytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    limit_memory(limit)
    print(_READY, flush=True)
    share = 0.8 * training_s / len(specs)
    for label, spec in specs.items():
        try:
            pack = Pack.from_spec(spec, device="cpu")
            first = _timed(pack, min(_WARM_UP_S, 0.2 * share))
            if pack.done or first[0] < 0.5 * share:  # else there is no time for more than the first round
                seconds, done = _repeated(pack, spec, min(_MEASURE_S, 0.5 * share))
            else:
                seconds, done = first
            speed = LabelSpeed(label, pack.members, seconds / done / pack.members)
        except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError if it cannot get memory
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            speed = LabelSpeed(label, why=f"training needs more than {limit / 2**30:.1f} GiB of memory")
        print(json.dumps(vars(speed)), flush=True)


def _timed(pack: Pack, seconds: float) -> tuple[float, int]:
    """Trains for about this many seconds, at least one round; returns the seconds and rounds that it took."""
    before, start = pack.round, time.perf_counter()
    pack.advance(seconds=seconds)
    return time.perf_counter() - start, max(pack.round - before, 1)


def _repeated(pack: Pack, spec: TrialSpec, seconds: float) -> tuple[float, int]:
    """As `_timed`, but begins again with a new pack whenever one is done: quick packs end before the time is up."""
    from trainers import Pack

    start, rounds = time.perf_counter(), 0
    while (left := seconds - (time.perf_counter() - start)) > 0:
        if pack.done:
            pack = Pack.from_spec(spec, plan=pack.plan)
        rounds += _timed(pack, left)[1]
    return time.perf_counter() - start, rounds


def _document(study: Study, label: str) -> dict[str, Any]:
    generator = np.random.default_rng(study.seed)
    plan = decided(study.budget, study.resources, study.sampler)
    wanted = min(plan.width, study.budget.trials_per_method)
    entry = study.entry(label)
    if study.budget.branches > 1 and entry.branching:
        wanted = 1  # its packs compute their trials one by one, and how many rounds are shared is not known
    space = entry.parameters()
    draws = ({name: parameter.sample(generator) for name, parameter in space.items()} for _ in count())
    configurations = [first_allowed(draws, entry.constraints) for _ in range(wanted)]
    return trial_document(study, label, configurations, study.seed)


if __name__ == "__main__":
    _train(json.load(sys.stdin), float(sys.argv[1]), int(sys.argv[2]))
