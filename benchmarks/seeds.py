"""What a trial costs in a pack of several seeds, beside the same trials in packs of one trial each.

    OMP_NUM_THREADS=1 python -m benchmarks.seeds [--seeds 4,9,16] [--repeats 3]

FedAvg for 50 rounds, evaluated at the default rounds, 10 clients a round with batches of 20 examples. Both kinds of
packs are run in turns in one process; times are its processor milliseconds a trial, with the building of packs.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import defaultdict
from typing import Any

import torch

from benchmarks.engine import machine
from benchmarks.widths import DIGITS
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

TASKS: dict[str, dict[str, Any]] = {
    "softmax, digits": DIGITS,
    "MLP of 32, digits": {**DIGITS, "model": {"name": "mlp", "hidden": [32]}},
    "MLP of 128, digits": {**DIGITS, "model": {"name": "mlp", "hidden": [128]}},
    "softmax, 28 x 28": {"name": "fashion", "clients": 30, "partition": {"dirichlet": 1.0}},
}
STEPS = (1, 10)


def trained(task: dict[str, Any], local_steps: int, seeds: int, width: int) -> float:
    """CPU-ms a trial, in packs of this width."""
    given = {"task": task, "method": {"name": "fedavg"}, "clients_per_round": 10, "batch_size": 20, "rounds": 50}
    settings = {"client_lr": 0.05, "server_lr": 1.0, "local_steps": local_steps}
    members, start = [{**settings, "seed": seed} for seed in range(seeds)], time.process_time()
    for first in range(0, seeds, width):
        Pack.from_spec(parse({**given, "members": members[first : first + width]}), device="cpu").advance()
    return 1e3 * (time.process_time() - start) / seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="4,9,16", help="of a pack, with commas between them")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}\n\n| task | local steps | seeds | alone, CPU-ms | in one pack | ratio |\n{'|---' * 6}|")
    for (name, task), steps, seeds in itertools.product(TASKS.items(), STEPS, map(int, options.seeds.split(","))):
        times: dict[int, list[float]] = defaultdict(list)
        for number, width in itertools.product(range(options.repeats + 1), (1, seeds)):
            spent = trained(task, steps, seeds, width)
            if number > 0:  # the first races of the oracles are of the process, not of the packs
                times[width].append(spent)
        ratios = [together / alone for alone, together in zip(times[1], times[seeds], strict=True)]
        middle = [f"{statistics.median(times[width]):.1f}" for width in (1, seeds)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {' | '.join([name, str(steps), str(seeds), *middle, spread])} |", flush=True)


if __name__ == "__main__":
    main()
