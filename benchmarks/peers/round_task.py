"""What `benchmarks/peer_rounds.py` has peers train: data, first model, and every round's clients and batches.

All peers read the same draws, so that they must arrive at the same model. Needs numpy only; `module` needs torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CLIENT_LR, BATCH, COHORT, CLIENTS = 0.05, 20, 10, 100


class RoundTask:
    """The task in a folder.

    Args:
        folder: with task.npz, draws.npz and MODEL.npz.
        model: "softmax", "mlp" or "cnn".
    """

    def __init__(self, folder: str, model: str) -> None:
        self.model = model
        with np.load(Path(folder, "task.npz")) as task:
            self.inputs, self.targets = task["x"], task["y"]
        with np.load(Path(folder, "draws.npz")) as draws:
            self.rows = draws[
                "rows"
            ]  # (rounds, M, examples): a row of the cohort's client, in the order of its batches
        with np.load(Path(folder, f"{model}.npz")) as first:
            self.first = list(first.values())  # in the order of the module's parameters

    def tensors(self) -> tuple[Any, Any]:
        """Inputs and targets as tensors of torch."""
        import torch

        return torch.from_numpy(self.inputs), torch.from_numpy(self.targets)

    def module(self) -> Any:
        """The first model as a module of torch."""
        import torch
        from torch import nn

        torch.set_num_threads(1)
        made = _MODULES[self.model](nn, *(held.shape for held in self.first))
        with torch.no_grad():
            for parameter, held in zip(made.parameters(), self.first, strict=True):
                parameter.copy_(torch.from_numpy(held))
        return made


def _softmax(nn: Any, weight: Any, bias: Any) -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(*weight[::-1]))


def _mlp(nn: Any, first: Any, _: Any, last: Any, __: Any) -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(*first[::-1]), nn.ReLU(), nn.Linear(*last[::-1]))


def _cnn(nn: Any, *shapes: Any) -> Any:
    layers = []
    for outputs, inputs, kernel, _ in shapes[0:4:2]:
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(*shapes[4][::-1]), nn.ReLU(), nn.Linear(*shapes[6][::-1]))


_MODULES = {"softmax": _softmax, "mlp": _mlp, "cnn": _cnn}


def save(path: str, arrays: Any) -> None:
    """Writes a model: arrays in the order of the module's parameters."""
    np.savez(path, *[np.asarray(held) for held in arrays])
