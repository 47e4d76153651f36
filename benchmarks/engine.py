"""What a round costs in the engine, beside a plain PyTorch loop that does the same.

    make bench        or        OMP_NUM_THREADS=1 python benchmarks/engine.py [--repeats 9] [--only mlp]

One round of FedAvg: 10 of 100 clients, 100 examples each, batches of 20, one epoch (5 steps), pictures of 28 x 28 in
62 classes, single precision, one thread. The engine is run as a study runs it, through trainers.Pack, with batches
drawn, losses reported and bytes counted; the loop below only trains. Both are timed in turns in one process, by the
processor time of the process, which other programs on the machine disturb less than the clock. A pack's row is per
trial. A ratio is the median over the repeats of engine / loop in the same repeat, with its quartiles."""

from __future__ import annotations

import argparse
import platform
import statistics
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

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

CLIENTS, EXAMPLES, COHORT, BATCH, STEPS, CLASSES, SIDE = 100, 100, 10, 20, 5, 62, 28
CLIENT_LR = 0.05


@dataclass(frozen=True)
class Case:
    """One row.

    Args:
        model: name of a model of the engine.
        trials: width of the pack.
        rounds: done at a time.
        plain: the same model as a torch module, for pictures (n, 1, 28, 28).
    """

    model: str
    trials: int
    rounds: int
    plain: Callable[[], nn.Module]


def softmax() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, CLASSES))


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


class Plain:
    """FedAvg as one would write it with care: one module, no copies of data, fused updates.

    Args:
        module: of the model.
        inputs: (clients * examples, 1, 28, 28), client after client.
        targets: (clients * examples,).
    """

    def __init__(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.module = module
        self.inputs, self.targets = inputs, targets
        self.parameters = list(module.parameters())
        self.server = [held.detach().clone() for held in self.parameters]
        self.generator = np.random.default_rng(0)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self._round()

    def _round(self) -> None:
        mean = [torch.zeros_like(held) for held in self.server]
        for client in self.generator.choice(CLIENTS, COHORT, replace=False):
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.server)
            order = torch.from_numpy(self.generator.permutation(EXAMPLES) + client * EXAMPLES)
            for rows in order.split(BATCH):
                loss = F.cross_entropy(self.module(self.inputs[rows]), self.targets[rows])
                gradients = torch.autograd.grad(loss, self.parameters)
                with torch.no_grad():
                    torch._foreach_add_(self.parameters, gradients, alpha=-CLIENT_LR)
            with torch.no_grad():
                torch._foreach_add_(mean, self.parameters, alpha=1 / COHORT)
        self.server = mean


def document(case: Case, path: Path) -> dict[str, Any]:
    """The trial that the engine runs."""
    return {
        "task": {"name": "npz", "path": str(path), "test": "test", "model": case.model},
        "method": {"name": "fedavg", "client_lr": CLIENT_LR, "server_lr": CLIENT_LR, "local_steps": STEPS},
        "clients_per_round": COHORT,
        "batch_size": BATCH,
        "rounds": 10**6,
        "eval_every": 10**6,
        "members": [{}] * case.trials,
    }


def data(folder: Path) -> tuple[Path, Tensor, Tensor]:
    """(file for the engine, inputs and targets for the loop); ten examples more are for testing, and not used."""
    generator = np.random.default_rng(0)
    count = CLIENTS * EXAMPLES + 10
    inputs = generator.random((count, 1, SIDE, SIDE), dtype=np.float32)
    targets = generator.integers(0, CLASSES, count)
    clients = np.minimum(np.arange(count) // EXAMPLES, CLIENTS - 1)
    path = folder / "bench.npz"
    np.savez(path, x=inputs, y=targets, client=clients, test=np.arange(count) >= CLIENTS * EXAMPLES)
    return path, torch.from_numpy(inputs[:-10]), torch.from_numpy(targets[:-10])


def measure(case: Case, path: Path, inputs: Tensor, targets: Tensor, repeats: int) -> tuple[list[float], list[float]]:
    """CPU-ms of a round of one trial, (engine, loop), one number a repeat."""
    pack = Pack.from_spec(parse(document(case, path)), device="cpu")
    plain = Plain(case.plain(), inputs, targets)
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
        f"| {case.model} | {case.trials} | {pack.plan.oracle} | {statistics.median(engine_ms):.1f} "
        f"| {statistics.median(plain_ms):.1f} | {ratios(engine_ms, plain_ms)} |",
        flush=True,
    )
    return engine_ms, plain_ms


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
    parser.add_argument("--only", choices=sorted({case.model for case in CASES}), help="one model")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    print("| model | trials | oracle | engine, CPU-ms | loop, CPU-ms | engine / loop |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path, inputs, targets = data(Path(folder))
        for case in CASES:
            if options.only in (None, case.model):
                measure(case, path, inputs, targets, options.repeats)


if __name__ == "__main__":
    main()
