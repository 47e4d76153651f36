"""What `benchmarks/peer_products.py` has peers tune: softmax regression by FedAvg, as a careful loop in plain PyTorch.

The clients and batches of every round are given, those that Driftline draws. The loop keeps one module, gathers batches
by index and updates in place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RATES = {"client_lr": (1e-3, 1.0), "server_lr": (0.1, 10.0)}
STEPS = (1, 5, 10)


class TrialTask:
    """The task in a folder: trial_task.npz, as `benchmarks/peer_products.py` writes it."""

    def __init__(self, folder: str) -> None:
        torch.set_num_threads(1)
        with np.load(Path(folder, "trial_task.npz")) as file:
            held = {name: torch.from_numpy(file[name]) for name in file.files}
        self.inputs, self.targets = held["inputs"], held["targets"]
        self.test_inputs, self.test_targets = held["test_inputs"], held["test_targets"]
        self.rows = held["rows"]  # (rounds, M, steps, batch)
        self.module = nn.Linear(self.inputs.shape[1], int(self.targets.max()) + 1)
        self.parameters = list(self.module.parameters())

    def train(self, client_lr: float, server_lr: float, local_steps: int) -> Iterator[float]:
        """The test loss after each round, from the model that is 0."""
        server = [torch.zeros_like(parameter) for parameter in self.parameters]
        for rows in self.rows:
            mean = [torch.zeros_like(parameter) for parameter in self.parameters]
            for client in rows:
                with torch.no_grad():
                    torch._foreach_copy_(self.parameters, server)
                for batch in client[:local_steps]:
                    loss = F.cross_entropy(self.module(self.inputs[batch]), self.targets[batch])
                    gradients = torch.autograd.grad(loss, self.parameters)
                    with torch.no_grad():
                        torch._foreach_add_(self.parameters, gradients, alpha=-client_lr)
                with torch.no_grad():
                    torch._foreach_add_(mean, self.parameters, alpha=1 / len(rows))
            torch._foreach_lerp_(server, mean, server_lr / client_lr)
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, server)
                yield F.cross_entropy(self.module(self.test_inputs), self.test_targets).item()


def write(path: str, trials: list[dict[str, Any]]) -> None:
    """Writes the trials: their hyperparameters and their last test loss."""
    Path(path).write_text(json.dumps(trials))


def given() -> tuple[str, str, int]:
    """The arguments of a script: the folder of the task, the file for the trials, the number of trials."""
    folder, out, trials = sys.argv[1:4]
    return folder, out, int(trials)
