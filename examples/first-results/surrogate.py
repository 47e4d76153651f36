"""What the clients' curvatures predict for examples/first-results/exact-trade-off.yaml, as a table.

Every client's loss is replaced by its second-order expansion at the optimum. The surrogates of these quadratics
(trainers.theory) give the model that each configuration approaches in every round; its true training loss is printed.

python examples/first-results/surrogate.py out/exact-trade-off
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline import Study, frontier
from trainers.tasks import digits
from trainers.theory.clients import client_quadratics
from trainers.theory.surrogate import surrogate
from trainers.theory.warning import TheoryWarning
from trainers.theory.weights import all_steps

Array = NDArray[np.float64]


class Clients:
    """Softmax regression with weight decay; weights are (classes, inputs + 1), flattened."""

    def __init__(self, task: dict[str, Any], weight_decay: float) -> None:
        examples = digits.build(digits.parse(task, "task"), "float64").train
        inputs = examples.inputs.reshape(len(examples.inputs), -1)
        self.inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
        self.wanted = np.eye(digits.digits.CLASSES)[examples.targets]
        self.rows = [np.arange(first, first + size) for first, size in zip(examples.offsets, examples.sizes, strict=True)]
        self.decay = weight_decay
        self.size = self.wanted.shape[1] * self.inputs.shape[1]

    def shares(self, params: Array, rows: Array) -> Array:
        """Probabilities of the classes, (rows, classes)."""
        scores = self.inputs[rows] @ params.reshape(self.wanted.shape[1], -1).T
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return shares / shares.sum(1, keepdims=True)

    def loss(self, params: Array) -> float:
        """The mean training loss of the clients, without weight decay: full_loss."""
        losses = [-np.log((self.shares(params, rows) * self.wanted[rows]).sum(1)).mean() for rows in self.rows]
        return float(np.mean(losses))

    def gradients(self, params: Array) -> Array:
        """(clients, d), with weight decay."""
        return np.stack(
            [
                ((self.shares(params, rows) - self.wanted[rows]).T @ self.inputs[rows] / len(rows)).ravel()
                + self.decay * params
                for rows in self.rows
            ]
        )

    def hessians(self, params: Array) -> Array:
        """(clients, d, d), with weight decay."""
        found = np.empty((len(self.rows), self.size, self.size))
        for hessian, rows in zip(found, self.rows, strict=True):
            shares, inputs = self.shares(params, rows), self.inputs[rows]
            bend = np.eye(shares.shape[1]) * shares[:, None, :] - shares[:, :, None] * shares[:, None, :]
            hessian[:] = np.einsum("ekl,ei,ej->kilj", bend, inputs, inputs, optimize=True).reshape(hessian.shape)
            hessian /= len(rows)
        return found + self.decay * np.eye(self.size)

    def optimum(self) -> Array:
        """By Newton's method from 0."""
        params = np.zeros(self.size)
        while np.linalg.norm(gradient := self.gradients(params).mean(0)) > 1e-12:
            params = params - np.linalg.solve(self.hessians(params).mean(0), gradient)
        return params
