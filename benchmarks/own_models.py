"""What a round costs with a torch module of one's own, beside a plain PyTorch loop over the same module.

    make bench        or        OMP_NUM_THREADS=1 python -m benchmarks.own_models [--only Lstm] [--trials 8]

Rounds, timing and ratios are those of benchmarks/engine.py: 10 of 100 clients, batches of 20, 5 steps of FedAvg. The
modules reach the engine as those of a user do, as `"model": {"module": "benchmarks.own_models:gelu_mlp"}`. The aim is
a ratio of at most 1.05 for every module."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.engine import Case, machine, measure
from benchmarks.plain_loops import CLASSES, CLIENTS, EXAMPLES, SIDE

WORDS, LETTERS, WIDTH = 10_000, 90, 64


def gelu_mlp() -> nn.Module:
    """Dense layers with GELU between them."""
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 256), nn.GELU(), nn.Linear(256, CLASSES))


class Words(nn.Module):
    """The mean of the embeddings of the words, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.scores = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        return self.scores(self.embedding(words).mean(1))


class Transformer(nn.Module):
    """Embeddings with positions, two encoder layers, and a dense layer at the last position."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, WIDTH)
        self.positions = nn.Parameter(torch.zeros(80, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, CLASSES)

    def forward(self, letters: Tensor) -> Tensor:
        return self.scores(self.encoder(self.embedding(letters) + self.positions[: letters.shape[1]])[:, -1])


class Lstm(nn.Module):
    """Embeddings, an LSTM of two layers, and a dense layer at the last position."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 8)
        self.lstm = nn.LSTM(8, WIDTH, 2, batch_first=True)
        self.scores = nn.Linear(WIDTH, CLASSES)

    def forward(self, letters: Tensor) -> Tensor:
        return self.scores(self.lstm(self.embedding(letters))[0][:, -1])


class _Block(nn.Module):
    def __init__(self, incoming: int, outgoing: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(incoming, outgoing, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outgoing, outgoing, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, outgoing), nn.GroupNorm(2, outgoing)])
        alike = stride == 1 and incoming == outgoing
        self.shortcut = nn.Identity() if alike else nn.Conv2d(incoming, outgoing, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inner = F.relu(self.norms[0](self.first(images)))
        return F.relu(self.norms[1](self.second(inner)) + self.shortcut(images))


class ResNet(nn.Module):
    """Three residual blocks with group normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.GroupNorm(2, 16), nn.ReLU())
        self.blocks = nn.Sequential(_Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2))
        self.scores = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.scores(self.blocks(self.stem(images)).mean((2, 3)))


MODULES: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...], int]] = {
    "gelu_mlp": (gelu_mlp, 0, (1, SIDE, SIDE), 6),
    "Words": (Words, WORDS, (20,), 3),
    "Transformer": (Transformer, LETTERS, (20,), 1),
    "Lstm": (Lstm, LETTERS, (80,), 1),
    "ResNet": (ResNet, 0, (1, SIDE, SIDE), 1),
}
"""Name -> function, how many different word ids its inputs have (0 is an image), their shape, rounds at a time."""


def data(folder: Path, words: int, shape: tuple[int, ...]) -> tuple[Path, Tensor, Tensor]:
    """(file for the engine, inputs and targets of the loop); ten examples more are for testing, and not used."""
    generator = np.random.default_rng(0)
    count = CLIENTS * EXAMPLES + 10
    drawn = (count, *shape)
    inputs = generator.integers(0, words, drawn) if words else generator.random(drawn, dtype=np.float32)
    targets = generator.integers(0, CLASSES, count)
    clients = np.minimum(np.arange(count) // EXAMPLES, CLIENTS - 1)
    path = folder / "own.npz"
    np.savez(path, x=inputs, y=targets, client=clients, test=np.arange(count) >= CLIENTS * EXAMPLES)
    return path, torch.from_numpy(inputs[:-10]), torch.from_numpy(targets[:-10])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=sorted(MODULES), help="one module")
    parser.add_argument("--trials", type=int, default=1, help="width of the pack")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    print("| module | trials | oracle | method or optimizer | engine, CPU-ms | loop, CPU-ms | engine / loop |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in [options.only] if options.only else MODULES:
        function, words, shape, rounds = MODULES[name]
        with tempfile.TemporaryDirectory() as folder:
            case = Case({"module": f"benchmarks.own_models:{name}"}, options.trials, rounds, function)
            measure(case, *data(Path(folder), words, shape), options.repeats)


if __name__ == "__main__":
    main()
