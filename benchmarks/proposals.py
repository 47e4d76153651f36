"""What a proposal of TPE costs after many trials, beside one for which Optuna's trials are made and copied again.

    OMP_NUM_THREADS=1 python benchmarks/proposals.py [--trials 500 2000 5000] [--repeats 15]

The trials have quasi-random configurations of client_lr, server_lr, local_steps and momentum, random values, and one in
17 diverged. Both samplers take turns in one process and must propose the same. Printed are the median processor times
of a proposal and the median of the repeats' own ratios, with its quartiles.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from search_spaces.parameters import Choice, Float, Space
from service.samplers import quasi_random, tpe
from service.samplers.optuna_history import History

SPACE: Space = {
    "client_lr": Float(1e-3, 1.0, log=True, also=(0,)),
    "server_lr": Float(1e-3, 10.0, log=True),
    "local_steps": Choice((1, 5, 10, 50)),
    "server.momentum": Choice((0.0, 0.9)),
}
OBJECTIVES = ("quality", "speed")


class MadeAgain(tpe.Sampler):
    """TPE that makes all of Optuna's trials for every proposal, and adds them to a study that copies them."""

    def _study(self, number: int, seed: int) -> optuna.Study:
        free = {name: self._space[name] for name in self._free}
        trials = History(free, len(OBJECTIVES), fixed=self.fixed).made(self._told(), self._running(number))
        for trial in trials:
            trial.__class__ = FrozenTrial
        study = optuna.create_study(directions=["maximize"] * len(OBJECTIVES), sampler=self._optuna(number, seed))
        study.add_trials(trials)
        return study


def proposal(sampler: tpe.Sampler, number: int) -> tuple[dict[str, Any], float]:
    """(configuration, CPU-ms) of one proposal."""
    began = time.process_time()
    configuration = sampler.ask(number)
    return configuration, 1000 * (time.process_time() - began)


def compare(trials: int, repeats: int) -> str:
    """A row of the table."""
    kept, again = tpe.Sampler(SPACE, OBJECTIVES, 3), MadeAgain(SPACE, OBJECTIVES, 3)
    draw, first = random.Random(0), quasi_random.Sampler(SPACE, OBJECTIVES, 3)
    for number in range(trials):
        values = {name: draw.random() for name in OBJECTIVES}
        configuration = first.ask(number)
        for sampler in (kept, again):
            sampler.tell(number, configuration, values, diverged=number % 17 == 0)
    for sampler in (kept, again):
        sampler.ask(trials)
    times = []
    for number in range(trials + 1, trials + 1 + repeats):
        (one, fast), (other, slow) = proposal(kept, number), proposal(again, number)
        if one != other:
            raise SystemExit(f"trial {number}: {one} is not {other}")
        times.append((fast, slow, fast / slow))
    fast, slow = (statistics.median(column) for column in list(zip(*times, strict=True))[:2])
    low, ratio, high = statistics.quantiles([row[2] for row in times], n=4)
    return f"| {trials:,} | {fast:.0f} | {slow:.0f} | **{ratio:.2f}** ({low:.2f} to {high:.2f}) |"


def main() -> None:
    """Print one row for each number of trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    print("| trials | kept, CPU-ms | made again, CPU-ms | ratio |\n|---|---|---|---|")
    for trials in arguments.trials:
        print(compare(trials, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
