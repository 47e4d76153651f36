"""What a round costs in the engine, beside a plain PyTorch loop that does the same.

    make bench        or        OMP_NUM_THREADS=1 python -m benchmarks.engine [--repeats 9] [--only mlp]
    OMP_NUM_THREADS=1 python -m benchmarks.engine --optimizers --methods [--only mlp] [--rows adam,maml]
    OMP_NUM_THREADS=1 python -m benchmarks.engine --roofline

One round: 10 of 100 clients, 100 examples each, batches of 20, one epoch (5 steps), pictures of 28 x 28 in 62 classes,
single precision, one thread. The engine is run as a study runs it, through trainers.Pack, with batches drawn, losses
reported and bytes counted; the loops (benchmarks/plain_loops.py) only train. Both are timed in turns in one process, by
the processor time of the process, which other programs on the machine disturb less than the clock. A pack's row is per
trial. A ratio is the median over the repeats of engine / loop in the same repeat, with its quartiles. Without options
the method is FedAvg; --optimizers is FedAvg with each client optimizer, --methods is all other methods: a few are timed
beside the loop of another method that takes the same gradients. The last line is the worst ratio, which shows
whether the engine ever loses. --only also takes linear, a regression on the same pictures, quadratic, FedAvg on
quadratics of 20 numbers, and transformer, whose examples are windows of 64 characters (two blocks of width 64).

--roofline compares a round of FedAvg with its matrix products and convolutions alone, of the same shapes."""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import string
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.method_rows import METHODS, OPTIMIZERS, Row
from benchmarks.plain_loops import (
    ADAPTIVE_LR,
    BATCH,
    CENTRAL,
    CLASSES,
    CLIENT_LR,
    CLIENTS,
    EXAMPLES,
    NUMBERS,
    SIDE,
    STEPS,
    Pictures,
    PlainQuadratic,
    half_squares,
)
from benchmarks.products import Products
from trainers.engine.packs.pack import Pack
from trainers.problem import Examples, Problem
from trainers.registry import models
from trainers.trial.document import parse


@dataclass(frozen=True)
class Case:
    """One row.

    Args:
        model: name of a model of the engine, or the settings of a module of one's own.
        trials: width of the pack.
        rounds: done at a time.
        plain: the same model as a torch module, for pictures (n, 1, 28, 28).
    """

    model: str | dict[str, str]
    trials: int
    rounds: int
    plain: Callable[[], nn.Module]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model if isinstance(self.model, str) else self.model["module"].rpartition(":")[2]


def softmax() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, CLASSES))


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 1))


def quadratic() -> nn.Module:
    return nn.ParameterList([torch.zeros(NUMBERS, dtype=torch.float64)])


def transformer() -> nn.Module:
    tokens = np.zeros((1, CONTEXT), np.int64)
    one = Examples(tokens, tokens, np.zeros(1, np.int64), np.ones(1, np.int64), "tokens")
    problem = Problem("transformer", one, model_settings={"classes": len(LETTERS)})
    return models()["transformer"].build(problem, torch.float32, torch.device("cpu")).make()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def cnn() -> nn.Module:
    convolutions = [nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    convolutions += [nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*convolutions, nn.Linear(32 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, CLASSES))


CASES = [
    Case("softmax", 1, 20, softmax),
    Case("softmax", 8, 5, softmax),
    Case("mlp", 1, 8, mlp),
    Case("mlp", 8, 1, mlp),
    Case("cnn", 1, 1, cnn),
    Case("cnn", 4, 1, cnn),
]
SMALL = [
    Case("linear", 1, 20, linear),
    Case("linear", 8, 5, linear),
    Case("quadratic", 1, 100, quadratic),
    Case("quadratic", 8, 20, quadratic),
    Case("transformer", 1, 1, transformer),
]
LETTERS, CONTEXT = string.ascii_letters, 64
QUADRATIC = {"name": "quadratic", "problem": "random", "clients": CLIENTS, "dimension": NUMBERS}


def document(case: Case, path: Path, row: Row = METHODS[0]) -> dict[str, Any]:
    """The trial that the engine runs."""
    adaptive = row.client.get("name") not in (None, "momentum", "nesterov")
    rate = ADAPTIVE_LR if adaptive or case.model == "linear" else CLIENT_LR
    settings = {"name": "fedavg", "client_lr": rate, "server_lr": rate, "local_steps": STEPS, **row.method}
    task = {"name": "npz", "path": str(path), "test": "test", "model": case.model}
    task = QUADRATIC if case.model == "quadratic" else task
    if case.model == "transformer":
        task = {"name": "text", "path": str(path.with_suffix("")), "context": CONTEXT, "test_fraction": 0.01}
    return {
        "task": {**task, "central": {"fraction": 0.1}} if row.central else task,
        "method": {name: value for name, value in settings.items() if value is not None},
        **({"client": row.client} if row.client else {}),
        "clients_per_round": row.cohort,
        "batch_size": BATCH,
        "rounds": 10**6,
        "eval_every": 10**6,
        "members": [{}] * case.trials,
    }


def data(folder: Path) -> tuple[Path, Tensor, Tensor]:
    """(file for the engine, inputs and targets of the loops); ten examples more are for testing, and not used."""
    generator = np.random.default_rng(0)
    count = CLIENTS * EXAMPLES + 10
    inputs = generator.random((count, 1, SIDE, SIDE), dtype=np.float32)
    targets = generator.integers(0, CLASSES, count)
    clients = np.minimum(np.arange(count) // EXAMPLES, CLIENTS - 1)
    path = folder / "bench.npz"
    np.savez(path, x=inputs, y=targets, client=clients, test=np.arange(count) >= CLIENTS * EXAMPLES)
    return path, torch.from_numpy(inputs[:-10]), torch.from_numpy(targets[:-10])


def texts(folder: Path) -> tuple[Tensor, Tensor]:
    """Writes a text for each client; returns (inputs, targets) of their windows. A last one each is for testing."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    length = (EXAMPLES + 1) * CONTEXT + 1
    numbers = generator.integers(0, len(LETTERS), (CLIENTS, length))
    for client, row in enumerate(numbers):
        (folder / f"{client:03}.txt").write_text("".join(LETTERS[number] for number in row))
    inputs, targets = (torch.from_numpy(numbers[:, start:][:, : EXAMPLES * CONTEXT]) for start in (0, 1))
    return inputs.reshape(-1, CONTEXT), targets.reshape(-1, CONTEXT)


def token_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of all positions."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def measure(
    case: Case, path: Path, inputs: Tensor, targets: Tensor, repeats: int, row: Row = METHODS[0]
) -> tuple[list[float], list[float]]:
    """CPU-ms of a round of one trial, (engine, loop), one number a repeat; prints medians and ratio."""
    pack = Pack.from_spec(parse(document(case, path, row)), device="cpu")
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    if case.model == "linear":
        inputs, targets, loss = inputs / SIDE, targets.float(), half_squares  # so that CLIENT_LR is stable
    if case.model == "transformer":
        loss = token_loss
    pictures = Pictures(inputs, targets, inputs[:CENTRAL].clone(), targets[:CENTRAL].clone(), loss)
    plain = (PlainQuadratic if case.model == "quadratic" else row.loop)(case.plain(), pictures)
    engine_ms, plain_ms = [], []
    pack.advance(1)
    plain.rounds(1)
    for _ in range(repeats):
        start = time.process_time()
        pack.advance(case.rounds)
        middle = time.process_time()
        plain.rounds(case.rounds)
        stop = time.process_time()
        engine_ms.append(1e3 * (middle - start) / case.rounds / case.trials)
        plain_ms.append(1e3 * (stop - middle) / case.rounds)
    print(
        f"| {case.name} | {case.trials} | {pack.plan.oracle} | {row.name} | {statistics.median(engine_ms):.1f} "
        f"| {statistics.median(plain_ms):.1f} | {ratios(engine_ms, plain_ms)} |",
        flush=True,
    )
    return engine_ms, plain_ms


def measure_products(case: Case, path: Path, repeats: int) -> None:
    """Prints CPU-ms of a round of FedAvg and of its products alone, and their ratio."""
    pack = Pack.from_spec(parse(document(case, path)), device="cpu")
    pack.advance(1)
    with Products() as products:
        pack.advance(1)
    round_ms, product_ms = [], []
    for _ in range(repeats):
        start = time.process_time()
        pack.advance(case.rounds)
        middle = time.process_time()
        for _ in range(case.rounds):
            products.replay()
        stop = time.process_time()
        round_ms.append(1e3 * (middle - start) / case.rounds / case.trials)
        product_ms.append(1e3 * (stop - middle) / case.rounds / case.trials)
    print(
        f"| {case.name} | {case.trials} | {pack.plan.oracle} | {statistics.median(round_ms):.1f} "
        f"| {statistics.median(product_ms):.1f} | {ratios(product_ms, round_ms)} |",
        flush=True,
    )


def ratios(engine_ms: list[float], plain_ms: list[float]) -> str:
    """Median and quartiles of the ratios of the repeats."""
    found = [one / other for one, other in zip(engine_ms, plain_ms, strict=True)]
    low, middle, high = statistics.quantiles(found, n=4)
    return f"**{middle:.2f}** ({low:.2f} to {high:.2f})"


def machine() -> str:
    """The processor, and what computes on it."""
    name = platform.processor() or platform.machine()
    file = Path("/proc/cpuinfo")
    if file.exists():
        names = [line.partition(":")[2].strip() for line in file.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return f"{name}, torch {torch.__version__}, {torch.get_num_threads()} thread, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=sorted({case.name for case in [*CASES, *SMALL]}), help="one model")
    parser.add_argument("--optimizers", action="store_true", help="FedAvg with every client optimizer")
    parser.add_argument("--methods", action="store_true", help="other methods")
    parser.add_argument("--roofline", action="store_true", help="FedAvg beside its products alone")
    parser.add_argument("--rows", help="names of rows, with commas between them")
    parser.add_argument("--trials", type=int, help="one width of packs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [*(OPTIMIZERS if options.optimizers else ()), *(METHODS if options.methods else ())] or METHODS[:1]
    wanted = [row for row in rows if options.rows is None or row.name in options.rows.split(",")]
    few = options.optimizers or options.methods
    cases = CASES if options.only is None else [case for case in [*CASES, *SMALL] if case.name == options.only]
    print(f"{machine()}\n")
    if options.roofline:
        print("| model | trials | oracle | round, CPU-ms | products alone, CPU-ms | products / round |")
        print("|---|---|---|---|---|---|", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path, _, _ = data(Path(folder))
            for case in cases:
                if case.trials == (options.trials or case.trials):
                    measure_products(case, path, options.repeats)
        return
    print("| model | trials | oracle | method or optimizer | engine, CPU-ms | loop, CPU-ms | engine / loop |")
    print("|---|---|---|---|---|---|---|", flush=True)
    worst = (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        path, inputs, targets = data(Path(folder))
        windows = texts(path.with_suffix(""))
        for row, case in itertools.product(wanted, cases):
            if case.trials == (options.trials or (1 if few else case.trials)):
                examples = windows if case.model == "transformer" else (inputs, targets)
                found = measure(case, path, *examples, options.repeats, row)
                ratio = statistics.median(one / other for one, other in zip(*found, strict=True))
                worst = max(worst, (ratio, f"{row.name} on {case.name}"))
    print(f"\nworst: {worst[0]:.2f}, {worst[1]}")


if __name__ == "__main__":
    main()
