"""What a proposal costs after many trials: TPE, NSGA-II, and Optuna's own TPE.

    OMP_NUM_THREADS=1 python benchmarks/proposals.py [--trials 500 2000 5000] [--repeats 9]

The trials have quasi-random configurations of client_lr, server_lr, local_steps and momentum, random values, and one in
17 diverged. As in a study, samplers are asked in generations: they are told 8 results and then asked for 8 proposals.
Printed is the processor time of a generation's proposals, divided by 8; the median of the repeats. For Optuna's own
TPE, all of Optuna's trials are made again for every proposal and added to a study that copies them, and Optuna splits
them again for each hyperparameter. It takes turns with Driftline's, which must propose the same, in one process; their
ratio is the median of the repeats' own ratios, with its quartiles.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from types import MethodType
from typing import Any

import optuna
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial

from search_spaces.parameters import Choice, Float, Space
from service.samplers import nsga2, quasi_random, tpe
from service.samplers.optuna_base import Learner
from service.samplers.optuna_history import History
from service.samplers.sampler import Hyperparameters

SPACE: Space = {
    "client_lr": Float(1e-3, 1.0, log=True, also=(0,)),
    "server_lr": Float(1e-3, 10.0, log=True),
    "local_steps": Choice((1, 5, 10, 50)),
    "server.momentum": Choice((0.0, 0.9)),
}
OBJECTIVES = ("quality", "speed")
GENERATION = 8


class OptunasOwn(tpe.Sampler):
    """TPE that keeps nothing from one proposal to the next."""

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        sampler = tpe.DrawnCategories(seed)
        for each in (sampler, sampler._draw):
            each._sample = MethodType(TPESampler._sample, each)
        return sampler

    def _study(self, number: int, seed: int) -> optuna.Study:
        free = {name: self._space[name] for name in self._free}
        trials = History(free, len(OBJECTIVES), fixed=self.fixed).made(self._told(), self._running(number))
        for trial in trials:
            trial.__class__ = FrozenTrial
        study = optuna.create_study(directions=["maximize"] * len(OBJECTIVES), sampler=self._optuna(number, seed))
        study.add_trials(trials)
        return study


class Fed:
    """A sampler that is told random results.

    Args:
        sampler: The sampler.
        trials: How many trials it has heard of at first.
    """

    def __init__(self, sampler: Learner, trials: int) -> None:
        self._sampler = sampler
        self._draw = random.Random(0)
        first = quasi_random.Sampler(SPACE, OBJECTIVES, 3)
        self._tell([(number, first.ask(number)) for number in range(trials)])
        self._number = trials

    def generation(self) -> tuple[list[Hyperparameters], float]:
        """A generation's proposals, which end before the next one, and the CPU-ms of each."""
        numbers = range(self._number, self._number + GENERATION)
        began = time.process_time()
        proposals = [self._sampler.ask(number) for number in numbers]
        took = 1000 * (time.process_time() - began) / GENERATION
        self._number += GENERATION
        self._tell(list(zip(numbers, proposals, strict=True)))
        return proposals, took

    def _tell(self, trials: list[tuple[int, Any]]) -> None:
        for number, configuration in trials:
            values = {name: self._draw.random() for name in OBJECTIVES}
            self._sampler.tell(number, configuration, values, diverged=number % 17 == 0)


def compare(trials: int, repeats: int) -> str:
    """A row of the table."""
    samplers = (
        tpe.Sampler(SPACE, OBJECTIVES, 3),
        OptunasOwn(SPACE, OBJECTIVES, 3),
        tpe.Sampler(SPACE, OBJECTIVES[:1], 3),
        nsga2.Sampler(SPACE, OBJECTIVES, 3),
    )
    fed = [Fed(sampler, trials) for sampler in samplers]
    times = []
    for repeat in range(repeats + 1):
        generations = [each.generation() for each in fed]
        if generations[0][0] != generations[1][0]:
            raise SystemExit(f"{trials} trials: {generations[0][0]} is not {generations[1][0]}")
        if repeat:  # the first generation makes all trials
            times.append([took for _, took in generations])
    kept, own, single, nsga = (statistics.median(column) for column in zip(*times, strict=True))
    low, ratio, high = statistics.quantiles([row[0] / row[1] for row in times], n=4)
    compared = f"{kept:.0f} | {own:.0f} | **{ratio:.2f}** ({low:.2f} to {high:.2f})"
    return f"| {trials:,} | {compared} | {single:.0f} | {nsga:.0f} |"


def main() -> None:
    """Print one row for each number of trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    print("| trials | TPE, CPU-ms | Optuna's own, CPU-ms | ratio | TPE, one objective | NSGA-II |")
    print("|---|---|---|---|---|---|")
    for trials in arguments.trials:
        print(compare(trials, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
