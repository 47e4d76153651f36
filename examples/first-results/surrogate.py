"""Prints what was measured in examples/first-results/exact-trade-off.yaml beside what the clients' curvatures predict.

Every client's loss is replaced by its quadratic expansion at the optimum. The surrogate of these quadratics
(`trainers.theory`) predicts the model after every round; its true training loss gives where it settles and ends.

python examples/first-results/surrogate.py out/exact-trade-off [picture.png]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline import Study, frontier
from driftline.results.curves import smooth
from driftline.results.scale import stored_axis
from driftline.results.settling import settling_cost
from trainers import evaluation_grid
from trainers.registry import tasks
from trainers.theory.clients import ClientQuadratics, client_quadratics
from trainers.theory.surrogate import surrogate
from trainers.theory.warning import TheoryWarning
from trainers.theory.weights import all_steps

Array = NDArray[np.float64]
CLASSES = 10


class Softmax:
    """Softmax regression of the study's clients, with weight decay; parameters are (classes x (inputs + 1),)."""

    def __init__(self, task: Mapping[str, Any], weight_decay: float) -> None:
        digits = tasks()["digits"]
        train = digits.build(digits.parse(task, "task"), "float64").train
        inputs = np.hstack([train.inputs.reshape(len(train.inputs), -1), np.ones((len(train.inputs), 1))])
        wanted = np.eye(CLASSES)[train.targets]
        ends = train.offsets + train.sizes
        self.clients = [(inputs[a:b], wanted[a:b]) for a, b in zip(train.offsets, ends, strict=True)]
        self.weight_decay = weight_decay
        self.optimum = np.zeros(inputs.shape[1] * CLASSES)
        while np.linalg.norm(gradient := self.gradients(self.optimum).mean(0)) > 1e-10:
            self.optimum = self.optimum - np.linalg.solve(self.hessians(self.optimum).mean(0), gradient)

    def loss(self, params: Array) -> float:
        """Mean loss of all clients, without weight decay."""
        losses = [-np.log((shares(params, inputs) * wanted).sum(1)).mean() for inputs, wanted in self.clients]
        return float(np.mean(losses))

    def gradients(self, params: Array) -> Array:
        """(clients, d)."""
        found = [
            ((shares(params, inputs) - wanted).T @ inputs).ravel() / len(inputs) for inputs, wanted in self.clients
        ]
        return np.array(found) + self.weight_decay * params

    def hessians(self, params: Array) -> Array:
        """(clients, d, d)."""
        found = []
        for inputs, _ in self.clients:
            p = shares(params, inputs)
            bend = np.eye(CLASSES) * p[:, :, None] - p[:, :, None] * p[:, None, :]
            hessian = np.einsum("nkl,ni,nj->kilj", bend, inputs, inputs, optimize=True) / len(inputs)
            found.append(hessian.reshape(2 * params.shape) + self.weight_decay * np.eye(params.size))
        return np.array(found)

    def quadratics(self) -> ClientQuadratics:
        """The clients' expansions at the optimum."""
        hessians, gradients = self.hessians(self.optimum), self.gradients(self.optimum)
        return client_quadratics(hessians, self.optimum - np.linalg.solve(hessians, gradients[..., None])[..., 0])


def shares(params: Array, inputs: Array) -> Array:
    """Probabilities of the classes, (examples, classes)."""
    scores = inputs @ params.reshape(CLASSES, -1).T
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def draw(rows: list[tuple[str, str, float, float, float, float]], path: str) -> None:
    """A picture: where each configuration settles and ends, measured (filled) and predicted (open)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    lines = dict.fromkeys((label, name) for label, name, *_ in rows)
    for number, line in enumerate(lines):
        table = np.array([row[2:] for row in rows if row[:2] == line])
        axes.plot(table[:, 0], table[:, 1], "o-", color=f"C{number}", label=", ".join(line))
        axes.plot(table[:, 2], table[:, 3], "o:", color=f"C{number}", markerfacecolor="white")
    axes.set(xscale="log", xlabel="settles after (rounds)", ylabel="full loss at the end", title="Speed and final loss")
    axes.set_xticks([5, 10, 20, 50], ["5", "10", "20", "50"])
    axes.minorticks_off()
    axes.legend(title="filled: measured, open: predicted")
    figure.savefig(path, dpi=110)


def main(folder: str, picture: str | None = None) -> None:
    """A row for each label, client_lr, local_steps and prox.

    The server_lr is the one that was measured to settle first, of those that end within 1 % of the smallest loss.
    """
    study, result = Study.from_yaml(Path(folder) / "study.yaml"), frontier(folder).data
    rounds, axis = np.array(sorted({0} | evaluation_grid(study.budget.rounds))), stored_axis(result)
    warnings.simplefilter("ignore", TheoryWarning)  # client_lr 0.8 is beyond 1 / smoothness
    softmax = quadratics = None
    drawn = []
    print("| label | client_lr | local_steps | prox | server_lr | settles | predicted | ends | predicted |")
    print("|" + "---|" * 9)
    for label, method in result["methods"].items():
        cells: dict[tuple[float, ...], list[Any]] = {}
        for row in method["configurations"]:
            values = row["hyperparameters"]
            cells.setdefault((values.get("prox", 0.0), values["client_lr"], values["local_steps"]), []).append(row)
        for (prox, client_lr, steps), rows in sorted(cells.items()):
            smallest = min(row["ends"] for row in rows)
            row = min((row for row in rows if row["ends"] <= 1.01 * smallest), key=lambda row: row["settles"])
            values = row["hyperparameters"]
            if softmax is None:
                softmax = Softmax(study.task, values["weight_decay"])
                quadratics = softmax.quadratics()
            found = surrogate(quadratics, client_lr, all_steps(int(steps)), prox)
            eigenvalues, vectors = np.linalg.eigh(found.hessian)
            away = vectors.T @ -found.optimum  # all models start at 0
            factors = 1 - values["server_lr"] * eigenvalues
            predicted = "diverges", "diverges"
            if np.abs(factors).max() <= 1:
                models = [found.optimum + vectors @ (factors**t * away) for t in rounds]
                losses = smooth(rounds.astype(float), np.array([softmax.loss(model) for model in models]))
                settles = settling_cost(rounds[1:].astype(float), losses[1:], losses[0], axis)
                predicted = f"{settles:.0f}", f"{losses[-1]:.3f}"
                name = f"prox {prox:g}" if prox else f"client_lr {client_lr:g}"
                drawn.append((label, name, row["settles"], row["ends"], float(settles), float(losses[-1])))
            print(
                f"| `{label}` | {client_lr:g} | {steps} | {prox:g} | {values['server_lr']:g} | {row['settles']:.0f} |"
                f" {predicted[0]} | {row['ends']:.3f} | {predicted[1]} |",
                flush=True,
            )
    if picture:
        draw(drawn, picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
