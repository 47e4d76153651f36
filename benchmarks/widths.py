"""What a trial costs in packs of several widths: the same random trials, cut into packs.

    OMP_NUM_THREADS=1 python -m benchmarks.widths [--task mnist_by_writer] [--widths 4,8,16] [--repeats 3]
    OMP_NUM_THREADS=1 python -m benchmarks.widths --alone [--task mlp] [--widths 8] [--trials 32] [--rounds 50]

FedAvg with 1, 5 or 10 local steps, 50 rounds, 10 clients a round. *As proposed* packs the trials in the order in which
they were drawn; *by work* sorts them by local_steps first, as a study does with trials that are proposed at once. All
are run in turns in one process; times are its processor milliseconds a trial, with the building of packs.

With --alone, packs whose trials share products are compared with *separate* ones, which compute each trial by itself:
what that costs, and how the last test losses of shared packs differ from those of trials that are trained alone."""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from benchmarks.engine import machine
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.trial.document import parse

DIGITS = {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}}
TASKS: dict[str, dict[str, Any]] = {
    "digits": {"task": DIGITS, "eval_every": 1},
    "mnist_by_writer": {"task": {"name": "mnist_by_writer"}, "eval_every": "auto"},
    "mlp": {"task": {**DIGITS, "model": {"name": "mlp"}}, "eval_every": "auto"},
    "cnn": {"task": {**DIGITS, "model": {"name": "cnn"}}, "eval_every": "auto"},
}
ORDERS = ("as proposed", "by work")
RATES = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 5}
WORK: dict[str, dict[str, Any]] = {
    "fedavg": {"method": {"name": "fedavg", **RATES}},
    "fedavg, adam": {"method": {"name": "fedavg", **RATES}, "client": {"name": "adam"}},
    "scaffold": {"method": {"name": "scaffold", **RATES}},
}
FAR = 1e-3
"""Relative difference of two losses that no longer looks like rounding."""

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
    given = {**TASKS[task], **WORK["fedavg"], "clients_per_round": 10, "batch_size": 20}
    oracles, start = set(), time.process_time()
    for first in range(0, len(members), width):
        spec = parse({**given, "rounds": 50, "members": members[first : first + width]})
        pack = Pack.from_spec(spec, device="cpu")
        pack.advance()
        oracles.add(pack.plan.oracle)
    return 1e3 * (time.process_time() - start) / len(members), oracles


def losses(given: dict[str, Any], members: Members, width: int, plan: Plan) -> tuple[float, list[float]]:
    """(CPU-ms a trial, the last test loss of each trial)."""
    found, start = [], time.process_time()
    for first in range(0, len(members), width):
        spec = parse({**given, "members": members[first : first + width]})
        lines = Pack.from_spec(spec, device="cpu", plan=replace(plan, width=spec.members)).advance()
        last = {line["member"]: line["test_loss"] for line in lines if "test_loss" in line}
        found += [last[member] for member in range(spec.members)]
    return 1e3 * (time.process_time() - start) / len(members), found


def alone(task: str, work: str, members: Members, width: int, rounds: int, repeats: int) -> str:
    """A line: what it costs to compute each trial of a pack alone, and how the others differ from that."""
    given = {**TASKS[task], **WORK[work], "clients_per_round": 10, "batch_size": 20, "rounds": rounds}
    shared = Pack.from_spec(parse({**given, "members": members[:width]}), device="cpu").plan
    plans = (shared, replace(shared, separate=True))
    times: dict[bool, list[float]] = defaultdict(list)
    for number, plan in itertools.product(range(repeats + 1), plans):
        spent, found = losses(given, members, width, plan)
        if number > 0:
            times[plan.separate].append(spent)
        if not plan.separate:
            together = found
    _, single = losses(given, members, 1, shared)
    off = [abs(one / other - 1) if math.isfinite(one) else 0.0 for one, other in zip(together, single, strict=True)]
    ratios = [apart / packed for packed, apart in zip(times[False], times[True], strict=True)]
    cells = [
        task,
        work,
        shared.oracle,
        *(f"{statistics.median(times[separate]):.1f}" for separate in (False, True)),
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{sum(one == other for one, other in zip(together, single, strict=True))} of {len(members)}",
        f"{sum(one > FAR for one in off)}",
        f"{max(off):.2g}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", choices=TASKS, default="digits")
    parser.add_argument("--widths", default="1,4,8,16,32", help="with commas between them")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="compare with packs that compute each trial alone")
    parser.add_argument("--rounds", type=int, default=50, help="with --alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    proposed = drawn(options.trials)
    members = dict(zip(ORDERS, (proposed, sorted(proposed, key=lambda member: -member["local_steps"])), strict=True))
    widths = [int(width) for width in options.widths.split(",")]
    if options.alone:
        print(f"{machine()}\n\n| task | method | oracle | shared, CPU-ms | separate | ratio | equal | far | largest |")
        print("|---" * 9 + "|")
        for width, work in itertools.product(widths, WORK):
            print(alone(options.task, work, members["by work"], width, options.rounds, options.repeats), flush=True)
        return
    times: dict[tuple[int, str], list[float]] = defaultdict(list)
    oracles: dict[tuple[int, str], set[str]] = {}
    for number, width, order in itertools.product(range(options.repeats + 1), widths, ORDERS):
        spent, oracles[width, order] = trained(options.task, members[order], width)
        if number > 0:  # the first races of the oracles are of the process, not of the packs
            times[width, order].append(spent)
    print(f"{machine()}\n\n| width | order | oracle | CPU-ms a trial |\n|---|---|---|---|")
    for (width, order), taken in times.items():
        row = f"{statistics.median(taken):.1f} ({min(taken):.1f} to {max(taken):.1f})"
        print(f"| {width} | {order} | {', '.join(sorted(oracles[width, order]))} | {row} |")


if __name__ == "__main__":
    main()
