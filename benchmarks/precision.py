"""What float64, float32 and bfloat16 cost, and how far their curves lie apart.

    OMP_NUM_THREADS=1 python -m benchmarks.precision [--rounds 100] [--seeds 3] [--only cnn] [--repeats 5]

FedAvg on the task mnist_by_writer (DATA_DIR): 10 clients a round, batches of 20, 5 local steps, one thread. Models of
text: DiLoCo on Shakespeare's plays with 4 workers, batches of 8 windows of 32 characters, 10 local steps. First the
times: trials of all types take turns in one process, and a ratio is the median over the repeats, with its quartiles.
Then whole curves, from the same models, cohorts and batches. A curve's distance from that of float64 is the largest one
after any evaluation, every 5 rounds: of test losses relative to float64's, and of test accuracies. Beside it stands
what chance does: the same distance between float64 curves of two seeds. Cells are medians over the seeds, with the
extremes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.engine import machine, ratios
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.trial.document import parse

DTYPES = ("float64", "float32", "bfloat16")
BESIDE = {"mlp": ("float32", "stacked")}  # what bfloat16 is compared with if both run outside example space
MODELS: Mapping[str, Mapping[str, Any]] = {
    "mlp": {"name": "mlp"},
    "cnn": {"name": "cnn"},
    "cnn of FEMNIST": {"name": "cnn", "filters": [32, 64], "dense": 512},
    "transformer": {"name": "transformer", "width": 36, "depth": 2, "heads": 2},
    "lstm": {"name": "lstm", "width": 64, "depth": 1},
}
WRITERS: Mapping[str, Any] = {
    "task": {"name": "mnist_by_writer"},
    "method": {"name": "fedavg", "client_lr": 0.05, "server_lr": 0.05, "local_steps": 5},
    "clients_per_round": 10,
    "batch_size": 20,
}
TEXT: Mapping[str, Any] = {
    "task": {"name": "text", "clients": 4, "partition": "iid", "context": 32, "test_windows": 256},
    "method": {"name": "fedavg", "client_lr": 0.01, "delta_lr": 0.7, "local_steps": 10, "clip_norm": 1.0},
    "client": {"name": "adamw", "beta2": 0.99, "state": "keep"},
    "server": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "batch_size": 8,
}
TIMED_ONLY = {"cnn of FEMNIST"}  # whose curves take half an hour
EVERY = 5
METRICS = ("test_loss", "test_accuracy")


def pack(model: str, dtype: str, seed: int, rounds: int, evaluated: int, oracle: str | None = None) -> Pack:
    """A trial at its start, by the fastest oracle or a given one."""
    trial = TEXT if model in ("transformer", "lstm") else WRITERS
    document = {
        **trial,
        "task": {**trial["task"], "model": MODELS[model]},
        "rounds": rounds,
        "eval_every": evaluated,
        "seed": seed,
        "dtype": dtype,
    }
    plan = None if oracle is None else Plan(oracle, 1, 1, "cpu", dtype, evaluated)
    return Pack.from_spec(parse(document), device="cpu", plan=plan)


def times(model: str, repeats: int) -> None:
    """Prints what a round costs in each type."""
    packs = [pack(model, dtype, 0, 10**6, 10**6) for dtype in DTYPES]
    if model in BESIDE:
        dtype, oracle = BESIDE[model]
        packs.insert(1, pack(model, dtype, 0, 10**6, 10**6, oracle))
    spent: list[list[float]] = [[] for _ in packs]
    for made in packs:
        made.advance(2)
    for _ in range(repeats):
        for made, own in zip(packs, spent, strict=True):
            start = time.process_time()
            made.advance(5)
            own.append(1e3 * (time.process_time() - start) / 5)
    for made, own in zip(packs, spent, strict=True):
        plan, middle = made.plan, statistics.median(own)
        ratio = ratios(own, spent[-2])  # to float32 by its fastest oracle
        print(f"| {model} | {plan.dtype} | {plan.oracle} | {middle:.1f} | {ratio} |", flush=True)


def curves(model: str, dtype: str, seeds: int, rounds: int) -> NDArray[np.float64]:
    """(seeds, evaluations, metrics) of whole trials."""
    lines = [pack(model, dtype, seed, rounds, EVERY).advance() for seed in range(seeds)]
    return np.array([[[line[name] for name in METRICS] for line in own if METRICS[0] in line] for own in lines])


def distances(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """(pairs, metrics) the largest distances of curves (pairs, evaluations, metrics); of losses relative to `other`."""
    apart = np.abs(one - other)
    apart[..., 0] /= other[..., 0]
    return np.asarray(apart.max(1))


def cells(values: NDArray[np.float64]) -> Sequence[str]:
    """Medians and extremes of each column."""
    return [f"{statistics.median(column):.1e} ({min(column):.1e} to {max(column):.1e})" for column in values.T.tolist()]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3, help="at least 2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=list(MODELS), help="one model")
    asked = parser.parse_args()
    if asked.seeds < 2:
        parser.error(f"--seeds must be at least 2, got {asked.seeds}")
    torch.set_num_threads(1)
    models = [model for model in MODELS if asked.only in (None, model)]
    print(f"{machine()}\n\n| model | dtype | oracle | a round, CPU-ms | to float32 |")
    print("|---|---|---|---|---|", flush=True)
    for model in models:
        times(model, asked.repeats)
    print("\n| model | from float64 | largest relative distance of test losses | of test accuracies |")
    print("|---|---|---|---|", flush=True)
    for model in (model for model in models if model not in TIMED_ONLY):
        found = {dtype: curves(model, dtype, asked.seeds, asked.rounds) for dtype in DTYPES}
        exact = found["float64"]
        for dtype in DTYPES[1:]:
            print(f"| {model} | {dtype} | {' | '.join(cells(distances(found[dtype], exact)))} |", flush=True)
        pairs = np.concatenate([distances(*exact[[one, two]][:, None]) for one, two in pairwise(range(asked.seeds))])
        print(f"| {model} | float64, another seed | {' | '.join(cells(pairs))} |", flush=True)


if __name__ == "__main__":
    main()
