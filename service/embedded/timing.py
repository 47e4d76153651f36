"""Estimates what a study will take on this computer: times packs of each label, and adds up the parts of a run.

The packs train in processes of their own (`timing_process`), for about `TRAINING_S` seconds and with at most
`MOST_BYTES` of additional memory each. Then the processes are ended; the speed of labels that they have not timed is
unknown. All parts are in processor seconds, which other programs hardly change. The ratio of elapsed to
processor time is measured at the same time and multiplies them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import fmean

from driftline.errors import InvalidSpec
from driftline.study.pack_families import families
from driftline.study.rung_rounds import arriving_at
from driftline.study.spec import Study
from driftline.study.stages import study_sizes
from driftline.study.trial_rounds import usual_budget
from driftline.study.validation import Errors
from driftline.wire.budgets import StudyEstimate
from driftline.wire.records import Phase
from service.cores import usable_cores
from service.driver.search.actions import SearchPlan
from service.driver.search.policy import confirmation_packs, search_packs
from service.driver.search.study_plan import decided
from service.embedded.timing_process import LOADED, READY, PackSpeed
from trainers import evaluation_grid

START_S = 60.0
"""Seconds that a process gets to load its modules and the data."""

TRAINING_S = 5.0
"""Processor seconds that a process may train, all labels together."""

PATIENCE = 5.0
"""Largest ratio of elapsed to processor time, on a busy computer, before a process is ended."""

MOST_BYTES = 4 * 2**30
"""Memory that training may take; on a small computer a quarter of its physical memory. Enforced on Linux only."""

PROCESSES = 2
"""Most processes that time packs at once: they share the cores with one another, as workers do."""

WAIT_S = 3.0
"""Seconds for which a study waits for Ray, whatever else the computer does."""

AROUND, PACK, TRIAL = 3.9, 0.085, 0.001
"""What a study takes around its packs (imports, Ray, workers, files, MLflow), a pack around its training (handed out,
reported, stored), and a trial at the end, as multiples of the processor seconds in which a process loads torch and the
engine: all of it depends on the machine in the same way. Measured with benchmarks/whole_product.py."""

PHASES: tuple[Phase, ...] = ("search", "confirmation")

BUSY = 1.2
"""From this slowdown on, the estimate mentions the influence of other programs."""


@dataclass(frozen=True)
class Timings:
    """What the processes have measured.

    Attributes:
        loading_s: Processor seconds in which each has loaded torch and the engine.
        data_s: Processor seconds in which each has then loaded the data.
        speeds: A speed from each process for each kind of packs.
    """

    loading_s: list[float] = field(default_factory=list)
    data_s: list[float] = field(default_factory=list)
    speeds: list[PackSpeed] = field(default_factory=list)

    @classmethod
    def together(cls, parts: Sequence[Timings]) -> Timings:
        """The measurements of several processes in one."""
        return cls(
            [seconds for part in parts for seconds in part.loading_s],
            [seconds for part in parts for seconds in part.data_s],
            [speed for part in parts for speed in part.speeds],
        )

    def speed(self, label: str, phase: Phase) -> PackSpeed:
        """The mean speed of a label's packs in a phase; of the search if there was no time for confirmation."""
        speeds = [speed for speed in self.speeds if (speed.label, speed.phase) == (label, phase)]
        measured = [speed for speed in speeds if speed.width]
        if measured:
            return PackSpeed(
                label,
                phase,
                measured[0].width,
                joins_seeds=measured[0].joins_seeds,
                build_s=fmean(speed.build_s for speed in measured),
                round_s=fmean(speed.round_s for speed in measured),
                evaluation_s=fmean(speed.evaluation_s for speed in measured),
            )
        if phase == "confirmation":
            return self.speed(label, "search")
        return speeds[0] if speeds else PackSpeed(label, why="no round was done in the time that training may take")

    @property
    def first_s(self) -> float:
        """Processor seconds that only the study's first pack takes: loading the data, choosing an oracle."""
        return fmean(self.data_s) + fmean(speed.first_s for speed in self.speeds if speed.first_s)

    @property
    def slowdown(self) -> float:
        """Ratio of elapsed to processor time."""
        return fmean(speed.slowdown for speed in self.speeds)


def estimate(study: Study, *, training_s: float = TRAINING_S, most_bytes: int = MOST_BYTES) -> StudyEstimate:
    """Times typical packs of each label: configurations drawn at random from its space.

    Args:
        study: A study that has been checked.
        training_s: Processor seconds that each process may train.
        most_bytes: Memory that each of them may take for training.

    Raises:
        InvalidSpec: A label fails to train, with every configuration that was tried: a line for each such label.
    """
    workers = max(1, int(usable_cores() // study.resources.cpus))
    seeds = range(study.seed, study.seed + min(workers, PROCESSES))
    with ThreadPoolExecutor(len(seeds)) as pool:
        parts = list(pool.map(lambda seed: _process(study, training_s, most_bytes, seed), seeds))
    measured = Timings.together(parts)
    refuse_failing(study, measured)
    return composed(study, measured, workers)


def refuse_failing(study: Study, measured: Timings) -> None:
    """Raises an InvalidSpec for the labels that fail to train with every configuration that was tried."""
    errors = Errors()
    for index, label in enumerate(study.labels):
        speeds = [speed for speed in measured.speeds if (speed.label, speed.phase) == (label, "search")]
        if speeds and all(speed.fails for speed in speeds):
            errors.add(InvalidSpec(f"methods[{index}]", f"{label}: {speeds[0].why}"))
    errors.raise_any()


def composed(study: Study, measured: Timings, workers: int) -> StudyEstimate:
    """The estimate: start and end, packs of the search, then packs of confirmation.

    Args:
        study: The study.
        measured: Speeds of its packs.
        workers: Number of workers.
    """
    budget, labels = study.budget, study.labels
    together = families(study.to_json(), budget)
    arguments = budget, study.resources, study.leading_sampler
    decision = decided(*arguments, families=together, stages=study_sizes(study))
    engine = {"joins_seeds": measured.speed(labels[0], "search").joins_seeds}
    decision = decision.model_copy(update={"engine": engine})
    plan = SearchPlan.of(labels, budget, decision, rungs=study.rungs, families=together)
    searched, confirmed = search_packs(plan), confirmation_packs(plan)
    trials = budget.trials * len(labels)
    rests_on = ["trials and rounds: the budget, if no trial diverges"]
    rests_on += [f"{label}: {_speed_text(measured, label)}" for label in labels] + _branches(study)
    hours = seconds = None
    if all(measured.speed(label, "search").width for label in labels):
        loading, slowdown = fmean(measured.loading_s), measured.slowdown
        around = WAIT_S + slowdown * ((AROUND + TRIAL * trials) * loading + measured.first_s)
        search = slowdown * _training(study, measured, "search", searched)
        confirmation = slowdown * _training(study, measured, "confirmation", confirmed)
        hours = (search + confirmation) * study.resources.cpus / 3600
        handing = slowdown * PACK * loading
        seconds = around + training_seconds(search + handing * searched, searched, workers, alone=1)
        seconds += training_seconds(confirmation + handing * confirmed, confirmed, workers)
        others = f", all {slowdown:.1f} times as long because of other programs" if slowdown > BUSY else ""
        text = f"{workers} CPU workers of this computer; {around:.0f} s of it for the start, files and MLflow{others}"
        rests_on.append(f"time: {text}")
    return StudyEstimate(
        trials=trials,
        packs=searched + confirmed,
        rounds=sum(usual_budget(study, entry).rounds_of_trials for entry in study.methods),
        cpu_hours=hours,
        seconds=seconds,
        rests_on=rests_on,
    )


def training_seconds(work: float, number: int, workers: int, alone: int = 0) -> float:
    """Seconds from the first pack's start to the last one's end.

    Args:
        work: Seconds in which one worker would train all packs.
        number: Number of packs.
        workers: Number of workers.
        alone: How many packs run before the others: the study's first one, because it decides the plan.

    Examples:
        >>> training_seconds(50, 5, 2, alone=1), training_seconds(60, 6, 2), training_seconds(0, 0, 2)
        (30.0, 30.0, 0.0)
    """
    return work / number * (alone - (alone - number) // workers) if number else 0.0


def evaluations(study: Study, label: str, phase: Phase) -> int:
    """Evaluations of a label's trials in a phase; with rungs about, because about a third of the trials passes one."""
    entry = study.entry(label)
    budget, every = usual_budget(study, entry), study.settings_of(entry).eval_every
    last = budget.last_round
    grid: Set[int] = evaluation_grid(last)
    if every not in (None, "auto"):
        grid = {*range(0, last, int(every)), last}
    if phase == "confirmation":
        return budget.confirmation_trials * len(grid)
    rungs = budget.rung_rounds
    arriving = arriving_at(len(rungs), budget.trials_per_method)
    return sum(
        trials * sum(low < number <= high for number in grid)
        for trials, low, high in zip(arriving, (-1, *rungs), rungs, strict=False)
    )


def _training(study: Study, measured: Timings, phase: Phase, packs: int) -> float:
    """Processor seconds in which all packs of a phase are built and trained."""
    speeds = {label: measured.speed(label, phase) for label in study.labels}
    trained = 0.0
    for entry in study.methods:
        budget = usual_budget(study, entry)
        rounds = budget.search_rounds if phase == "search" else budget.confirmation_trials * budget.last_round
        trained += rounds * speeds[entry.label].round_s
    evaluated = sum(evaluations(study, label, phase) * speed.evaluation_s for label, speed in speeds.items())
    return trained + evaluated + packs * fmean(speed.build_s for speed in speeds.values())


def _speed_text(measured: Timings, label: str) -> str:
    speeds = [measured.speed(label, phase) for phase in PHASES]
    if not speeds[0].width:
        return f"unknown: {speeds[0].why}"
    by_width = {speed.width: f"{1000 * speed.round_s:.2f} ms in packs of {speed.width}" for speed in speeds}
    return f"a round of one trial takes {', '.join(by_width.values())}"


def _branches(study: Study) -> list[str]:
    """Which labels may take less time, because their trials share rounds."""
    labels = ", ".join(entry.label for entry in study.methods if entry.branching)
    alone = f"branches: the trials of {labels} as if each were trained alone; rounds that they share take less"
    return [alone] if study.budget.branches > 1 else []


def _process(study: Study, training_s: float, most_bytes: int, seed: int) -> Timings:
    """What one process measures before it ends or is killed."""
    arguments = [str(training_s), str(most_bytes), str(seed)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "service.embedded.timing_process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    timer = threading.Timer(START_S, process.kill)
    timer.start()
    measured = Timings()
    try:
        with process.stdin:
            json.dump(study.to_json(), process.stdin)
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == LOADED:
                measured.loading_s.append(float(rest))
            elif word == READY:
                measured.data_s.append(float(rest))
                timer.cancel()
                timer = threading.Timer(PATIENCE * training_s, process.kill)
                timer.start()
            else:
                measured.speeds.append(PackSpeed(**json.loads(line)))
    except BrokenPipeError:
        pass  # it has ended already: nothing is known
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
    return measured
