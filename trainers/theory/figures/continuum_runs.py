"""Simulated runs on the continuum of clients ([B] section 4, Figure 1): one client and one example per round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.theory.families import continuum_optimum
from trainers.theory.figures.curves import Curve, FigureData, Panel, ReferenceLine
from trainers.theory.spectrum import phi
from trainers.theory.weights import all_steps

Array = NDArray[np.float64]
SERVER_LR = 1e-4
ROUNDS = 100_000
EVERY = 400
TRUE_OPTIMUM = 1 / 1.4
ONE_SHOT = 0.8  # mean of the clients' minimizers


def runs(settings: list[tuple[float, int]], rounds: int = ROUNDS, every: int = EVERY, seed: int = 0) -> Array:
    """Models of several settings (client_lr, local_steps) after every `every` rounds, from 0.

    A round moves x by -server_lr phi(i) (x - 1 / i) for one client i, drawn with density 8 i / 15 on [0.5, 2]. All
    settings share the same clients.

    Args:
        settings: pairs of client_lr and local_steps.
        rounds: number of rounds.
        every: rounds between recorded models.
        seed: seed of the clients.

    Returns:
        (settings, rounds // every).
    """
    drawn = np.sqrt(0.25 + 3.75 * np.random.default_rng(seed).random(rounds))
    moves = SERVER_LR * np.array([phi(drawn, client_lr, steps) for client_lr, steps in settings])
    kept, pulls = np.ascontiguousarray((1 - moves).T), np.ascontiguousarray((moves / drawn).T)
    models = np.zeros(len(settings))
    record = np.empty((rounds // every, len(settings)))
    for index in range(rounds // every):
        for now in range(index * every, (index + 1) * every):
            models *= kept[now]
            models += pulls[now]
        record[index] = models
    return record.T


def figure_b1() -> FigureData:
    """[B] Figure 1: the limit of FedAvg on the continuum, by local steps and by client rate (values chosen)."""
    by_steps = [(0.5, steps) for steps in (1, 2, 5, 10, 20, 50)]
    by_rate = [(client_lr, 20) for client_lr in (0.0, 0.01, 0.05, 0.1, 0.5, 1.0)]
    models = runs(by_steps + by_rate)
    rounds = np.arange(1, models.shape[1] + 1) * float(EVERY)
    lines = [ReferenceLine(TRUE_OPTIMUM, "optimum"), ReferenceLine(ONE_SHOT, "mean of minimizers")]
    panels = []
    for title, settings, values, labels in (
        ("client rate 0.5", by_steps, models[:6], [f"{steps} local step{'s' * (steps > 1)}" for _, steps in by_steps]),
        ("20 local steps", by_rate, models[6:], [f"client rate {client_lr:g}" for client_lr, _ in by_rate]),
    ):
        curves = []
        for style, ((client_lr, steps), run, label) in enumerate(zip(settings, values, labels, strict=True)):
            limit = continuum_optimum(client_lr, all_steps(steps))
            columns: dict[str, Array | float | str] = {
                "client_lr": client_lr,
                "local_steps": float(steps),
                "surrogate_optimum": limit,
            }
            curves.append(Curve(label, rounds / 1000, run, columns, style, width=1.1, marked=True))
        panels.append(Panel(title, curves, lines))
    return FigureData(
        "B1",
        "FedAvg on a continuum of clients, server rate 1e-4, one client and one example a round.",
        panels,
        x_label="rounds (thousands)",
        y_label="model",
        x_range=(0.0, ROUNDS / 1000),
        y_range=(0.68, 0.84),
        x_name="thousand_rounds",
        y_name="model",
    )
