"""What TPE's way of choosing categories does to a search: Optuna's own, drawn ones, and Driftline's, which draws them
and gives an extra point at most half of the latest trials.

    OMP_NUM_THREADS=1 python benchmarks/searches.py [--searches 50]

Every search has 64 trials, 8 at a time, of FedAvg with server momentum on a random quadratic of 6 clients: client_lr in
[1e-3, 1] or 0, server_lr in [1e-3, 10], 1, 5, 10 or 50 local steps, momentum 0 or 0.9, 100 rounds. A curve follows
from its matrices, so nothing is trained. Quality is -log10(tail + floor): the larger the floor, the less a rate of 0 is
worth. Printed are the mean hypervolume with its standard error, and in which share of the searches at least 13 of the
last 16 proposals had client_lr 0.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from search_spaces.parameters import Choice, Float
from service.samplers import tpe
from service.samplers.optuna_base import Learner

ROUNDS, TRIALS, PACK, CLIENTS, DIMENSION = 100, 64, 8, 6, 4
SPACE = {
    "client_lr": Float(1e-3, 1.0, log=True, also=(0,)),
    "server_lr": Float(1e-3, 10.0, log=True),
    "local_steps": Choice((1, 5, 10, 50)),
    "server.momentum": Choice((0.0, 0.9)),
}
Array = NDArray[np.float64]


class OptunasOwn(tpe.Sampler):
    """TPE that takes the most promising category each time."""

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)


class OnlyDrawn(tpe.Sampler):
    """TPE that draws categories and leaves it at that."""

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return tpe.DrawnCategories(seed, share=math.inf)


def problem(seed: int) -> tuple[Array, Array]:
    """Hessians (M, P, P) with eigenvalues from 1 to 20, and minimizers (M, P)."""
    draw = np.random.default_rng(seed)
    turns = [np.linalg.qr(draw.normal(size=(DIMENSION, DIMENSION)))[0] for _ in range(CLIENTS)]
    hessians = [turn @ np.diag(np.exp(draw.uniform(0, np.log(20), DIMENSION))) @ turn.T for turn in turns]
    return np.array(hessians), draw.normal(size=(CLIENTS, DIMENSION))


def curve(hessians: Array, centers: Array, setting: dict[str, Any]) -> Array | None:
    """Excess loss (ROUNDS + 1,) of FedAvg with all gradient weights 1; None where it diverges."""
    surrogate, shift = np.zeros((DIMENSION, DIMENSION)), np.zeros(DIMENSION)
    for hessian, center in zip(hessians, centers, strict=True):
        step, power, powers = np.eye(DIMENSION) - setting["client_lr"] * hessian, np.eye(DIMENSION), 0.0
        for _ in range(setting["local_steps"]):
            powers, power = powers + power, power @ step
        surrogate += hessian @ powers / CLIENTS
        shift += hessian @ powers @ center / CLIENTS
    mean = hessians.mean(0)
    best = np.linalg.solve(mean, np.einsum("mij,mj->i", hessians, centers) / CLIENTS)
    model, velocity, losses = np.full(DIMENSION, 3.0), np.zeros(DIMENSION), []
    for _ in range(ROUNDS + 1):
        losses.append(0.5 * (model - best) @ mean @ (model - best))
        if not losses[-1] < 1e8:
            return None
        velocity = setting["server.momentum"] * velocity + surrogate @ model - shift
        model = model - setting["server_lr"] * velocity
    return np.array(losses)


def values(losses: Array, floor: float) -> dict[str, float]:
    """Quality and speed of a curve; a model that came less than half of the way has the least speed."""
    tail = losses[-5:].mean()
    away = np.flatnonzero(np.abs(losses - tail) > 0.05 * abs(losses[0] - tail))
    settled = ROUNDS if tail > losses[0] / 2 else max(1, away[-1] + 1 if len(away) else 0)
    return {"quality": -np.log10(tail + floor), "speed": -np.log(settled)}


def hypervolume(points: list[tuple[float, float]]) -> float:
    """Area that the points dominate, from quality -1 and speed of ROUNDS."""
    area, height = 0.0, -np.log(ROUNDS)
    for quality, speed in sorted(points, reverse=True):
        if quality > -1 and speed > height:
            area, height = area + (quality + 1) * (speed - height), speed
    return area


def search(kind: type[Learner], seed: int, floor: float) -> tuple[float, bool]:
    """(hypervolume, whether it stayed at client_lr 0) of one search."""
    hessians, centers = problem(seed % 10)
    sampler = kind(SPACE, ("quality", "speed"), seed)
    points, zero = [], []
    for first in range(0, TRIALS, PACK):
        for number, setting in [(number, sampler.ask(number)) for number in range(first, first + PACK)]:
            losses = curve(hessians, centers, setting)
            found = None if losses is None else values(losses, floor)
            sampler.tell(number, setting, found, diverged=found is None)
            zero.append(setting["client_lr"] == 0)
            if found is not None:
                points.append((found["quality"], found["speed"]))
    return hypervolume(points), sum(zero[-16:]) >= 13


def main() -> None:
    """Prints one line for each kind and floor."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--searches", type=int, default=50)
    searches = parser.parse_args().searches
    print("| categories | floor | hypervolume | stayed at client_lr 0 |\n|---|---|---|---|")
    for floor in (0.1, 0.01):
        for name, kind in (("Optuna's own", OptunasOwn), ("drawn", OnlyDrawn), ("Driftline's", tpe.Sampler)):
            found = [search(kind, seed, floor) for seed in range(searches)]
            areas = [area for area, _ in found]
            error = statistics.stdev(areas) / searches**0.5
            stayed = statistics.mean(stayed for _, stayed in found)
            print(f"| {name} | {floor} | {statistics.mean(areas):.2f} ± {error:.2f} | {stayed:.0%} |", flush=True)


if __name__ == "__main__":
    main()
