"""What a trial costs in packs of several widths: the same random trials of softmax regression, cut into packs.

    OMP_NUM_THREADS=1 python -m benchmarks.widths [--task mnist_by_writer] [--widths 4,8,16] [--repeats 3]

FedAvg with 1, 5 or 10 local steps, 50 rounds, 10 clients a round. *As proposed* packs the trials in the order in which
they were drawn; *by work* sorts them by local_steps first, as a study does with trials that are proposed at once. All
are run in turns in one process; times are its processor milliseconds a trial, with the building of packs."""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.engine import machine
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

TASKS: dict[str, dict[str, Any]] = {
    "digits": {"task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}}, "eval_every": 1},
    "mnist_by_writer": {"task": {"name": "mnist_by_writer"}, "eval_every": "auto"},
}
ORDERS = ("as proposed", "by work")

Members = Sequence[dict[str, float]]


def drawn(count: int) -> list[dict[str, float]]:
    """Random trials."""
    generator = random.Random(0)
    return [
        {
            "client_lr": 10 ** generator.uniform(-3, 0),
            "server_lr": 10 ** generator.uniform(-1, 1),
            "local_steps": generator.choice([1, 5, 10]),
        }
        for _ in range(count)
    ]


def trained(task: str, members: Members, width: int) -> tuple[float, set[str]]:
    """(CPU-ms a trial, oracles of the packs)."""
    rates = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 5}
    given = {**TASKS[task], "method": {"name": "fedavg", **rates}, "clients_per_round": 10, "batch_size": 20}
    oracles, start = set(), time.process_time()
    for first in range(0, len(members), width):
        spec = parse({**given, "rounds": 50, "members": members[first : first + width]})
        pack = Pack.from_spec(spec, device="cpu")
        pack.advance()
        oracles.add(pack.plan.oracle)
    return 1e3 * (time.process_time() - start) / len(members), oracles


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="digits")
    parser.add_argument("--widths", default="1,4,8,16,32", help="with commas between them")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    proposed = drawn(options.trials)
    members = dict(zip(ORDERS, (proposed, sorted(proposed, key=lambda member: -member["local_steps"])), strict=True))
    widths = [int(width) for width in options.widths.split(",")]
    times: dict[tuple[int, str], list[float]] = defaultdict(list)
    oracles: dict[tuple[int, str], set[str]] = {}
    for number, width, order in itertools.product(range(options.repeats + 1), widths, ORDERS):
        spent, oracles[width, order] = trained(options.task, members[order], width)
        if number > 0:  # the first races of the oracles are of the process, not of the packs
            times[width, order].append(spent)
    print(f"{machine()}\n\n| width | order | oracle | CPU-ms a trial |\n|---|---|---|---|")
    for (width, order), spent in times.items():
        row = f"{statistics.median(spent):.1f} ({min(spent):.1f} to {max(spent):.1f})"
        print(f"| {width} | {order} | {', '.join(sorted(oracles[width, order]))} | {row} |")


if __name__ == "__main__":
    main()
