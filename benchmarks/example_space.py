"""What a round costs in example space beside one on replicas of the model, and by the population.

    OMP_NUM_THREADS=1 python benchmarks/example_space.py [--repeats 9] [--model mlp] [--method scaffold]
    OMP_NUM_THREADS=1 python benchmarks/example_space.py --populations

Rounds of FedAvg, or of another method, with 10 clients, single precision, one thread. First table: 100 clients with 100
examples of 784 numbers each, shuffled batches of 20. The same pack is trained with the oracles "stacked" and
"example_space" in turns; times are processor milliseconds per trial, a ratio is the median over the repeats with its
extremes. A pack of several local steps has them in turn (1, 5, 10, 50, 1, ...). Second table: FedAvg with one trial,
one local step and 2 examples of 20 numbers for each client, in populations of different sizes that take turns; memory
is what the process grows by when it reads the file and trains a round.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.trial.document import parse

MIXED = [1, 5, 10, 50]
SIZES = {"softmax": ((10, 62), (1, 8, 16)), "mlp": ((62,), (1, 8))}  # classes, trials
POPULATIONS = (1_000, 10_000, 100_000, 1_000_000)
COHORTS = {10: POPULATIONS, 1000: POPULATIONS[1:]}
ROUNDS = 50
WARM = 20  # rounds, after which most clients' inner products are kept
ORACLES = ("stacked", "example_space")


def data(path: Path, clients: int, examples: int, features: int, classes: int) -> None:
    """A file of random examples; the last five are for testing."""
    generator = np.random.default_rng(0)
    rows = clients * examples
    inputs = generator.random((rows, features), dtype=np.float32)
    owners = np.arange(rows) // examples
    np.savez(path, x=inputs, y=generator.integers(0, classes, rows), client=owners, test=np.arange(rows) >= rows - 5)


def pack(
    path: Path,
    steps: Sequence[int],
    trials: int,
    batch_size: int,
    oracle: str,
    model: str = "softmax",
    method: str = "fedavg",
    cohort: int = 10,
) -> Pack:
    """A pack that is trained with one oracle."""
    spec: dict[str, Any] = {
        "task": {"name": "npz", "path": str(path), "test": "test", "model": model},
        "method": {"name": method, "client_lr": 0.05, "server_lr": 0.05, "local_steps": steps[0]},
        "clients_per_round": cohort,
        "batch_size": batch_size,
        "batching": "shuffled",
        "rounds": 10**6,
        "eval_every": 10**6,
        "members": [{"local_steps": steps[one % len(steps)]} for one in range(trials)],
    }
    made = Pack.from_spec(parse(spec), device="cpu", plan=Plan(oracle, trials, 1, "cpu", "float32", 10**6))
    made.advance(WARM)
    return made


def spent(made: Pack, rounds: int) -> float:
    """Processor milliseconds of a round."""
    start = time.process_time()
    made.advance(rounds)
    return 1e3 * (time.process_time() - start) / rounds


def oracles(folder: Path, repeats: int, model: str, method: str) -> None:
    """The first table."""
    classes_of, widths = SIZES[model]
    every = itertools.product(classes_of, widths, ([5], [10], [50], MIXED))
    cases = [case for case in every if case[1] > 1 or case[2] != MIXED]
    print("| classes | trials | local steps | stacked, CPU-ms | example space, CPU-ms | example space / stacked |")
    print("|---|---|---|---|---|---|", flush=True)
    for classes, trials, steps in cases:
        path = folder / f"{classes}.npz"
        if not path.exists():
            data(path, 100, 100, 784, classes)
        packs = [pack(path, steps, trials, 20, oracle, model, method) for oracle in ORACLES]
        times = [[spent(made, 3) / trials for made in packs] for _ in range(repeats)]
        ratios = [there / here for here, there in times]
        middle = [statistics.median(column) for column in zip(*times, strict=True)]
        print(
            f"| {classes} | {trials} | {', '.join(map(str, steps))} | {middle[0]:.2f} | {middle[1]:.2f} "
            f"| **{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f}) |",
            flush=True,
        )


def by_population(folder: Path, repeats: int) -> None:
    """The second table."""
    print("| clients | file, MB | memory, MB | cohort | a round, CPU-ms | to the smallest population |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for cohort, populations in COHORTS.items():
        files, grown, packs = [], [], []
        for clients in populations:
            files.append(folder / f"{clients}.npz")
            if not files[-1].exists():
                data(files[-1], clients, 2, 20, 10)
        for path in files:
            before = resident()
            packs.append(pack(path, [1], 1, 1, "stacked", cohort=cohort))
            spent(packs[-1], 1)
            grown.append(resident() - before)
        times = [[spent(made, ROUNDS) for made in packs] for _ in range(repeats)]
        for place, clients in enumerate(populations):
            column = [row[place] for row in times]
            ratios = [row[place] / row[0] for row in times]
            file = files[place].stat().st_size / 1e6
            memory = f"{grown[place] / 1e6:.1f}" if cohort == next(iter(COHORTS)) else "the same model"
            print(
                f"| {clients:,} | {file:.1f} | {memory} | {cohort} | {statistics.median(column):.2f} "
                f"| **{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f}) |",
                flush=True,
            )


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--model", choices=SIZES, default="softmax", help="of the first table")
    parser.add_argument("--method", default="fedavg", help="of the first table")
    parser.add_argument("--populations", action="store_true", help="the second table instead of the first")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if options.populations:
            by_population(Path(folder), options.repeats)
        else:
            oracles(Path(folder), options.repeats, options.model, options.method)


if __name__ == "__main__":
    main()
