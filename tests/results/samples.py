"""Made-up studies whose curves follow a formula, close to what training does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.results.curves import TrialCurve
from driftline.results.document import Reading


@dataclass(frozen=True)
class Chosen(Reading):
    quality: str = "test_accuracy"
    cost: str = "rounds"


def curve(
    values: Any,
    *,
    metric: str = "test_accuracy",
    rounds: Any = None,
    label: str = "fedavg",
    number: int = 0,
    seed: int = 0,
    state: str = "COMPLETE",
    phase: str = "search",
    configuration: int | None = None,
    hyperparameters: dict[str, Any] | None = None,
    gradients: int = 10,
    **columns: Any,
) -> TrialCurve:
    """A trial that reported these values, in rounds 0, 1, ... unless they are given."""
    at = np.arange(len(values)) if rounds is None else np.asarray(rounds)
    table = {"round": at, metric: values, "client_gradients": gradients * at, "exchanges": at}
    table |= {"bytes_up": 400 * at, "bytes_down": 400 * at, **columns}
    about: dict[str, Any] = {"label": label, "phase": phase, "number": number, "seed": seed, "state": state}
    return TrialCurve(
        trial=f"study.{label}.{phase[0]}{number:05d}",
        configuration=number if configuration is None else configuration,
        hyperparameters=hyperparameters or {"client_lr": 0.1 * (number + 1)},
        columns={name: np.asarray(column, dtype=np.float64) for name, column in table.items()},
        **about,
    )


def confirmed(
    values: Any, *, configuration: int = 0, label: str = "fedavg", states: Sequence[str] = (), **more: Any
) -> list[TrialCurve]:
    """A configuration with a row of values for its search trial (seed 0), then one for each fresh seed (1, 2, ...)."""
    found = []
    for seed, row in enumerate(values):
        own = {"number": 100 * configuration + seed, "phase": "confirmation"} if seed else {"number": configuration}
        own |= {"seed": seed, "state": states[seed] if states else "COMPLETE"}
        found.append(curve(row, label=label, configuration=configuration, **own, **more))
    return found


def learning(
    rounds: int, rate: float, client_lr: float, seed: int, metric: str, every: int = 1
) -> tuple[dict[str, Any], str]:
    """Columns and state of a made-up trial: fast configurations end at a worse place, too fast ones diverge."""
    generator = np.random.default_rng([seed, int(1e6 * rate), int(1e6 * client_lr)])
    at = np.arange(rounds + 1)
    final = 0.955 - 0.25 * client_lr**1.5 + 0.004 * generator.standard_normal()
    accuracy = 0.1 + (final - 0.1) * (1 - np.exp(-rate * at)) + 0.008 * generator.standard_normal(rounds + 1)
    accuracy[0] = 0.1
    state = "COMPLETE"
    if rate > 1.2:
        state, at = "DIVERGED", at[:12]
        accuracy = accuracy[:12] * np.exp(-0.3 * at)
    evaluated = (at % every == 0) | (at == at[-1])
    loss = -2.3 * np.log(np.clip(accuracy, 0.01, 0.999)) / np.log(10)
    return {
        "round": at,
        "test_accuracy": np.where(evaluated, accuracy, np.nan),
        "test_loss": np.where(evaluated, loss, np.nan),
        "train_loss": np.where(at > 0, loss * 0.95, np.nan),
        "client_gradients": at * 50.0,
        "bytes_up": at * 26000.0 * (2 if metric == "two" else 1),
        "bytes_down": at * 26000.0,
        "exchanges": at,
        "wall_seconds": at * 0.03,
    }, state


def study(
    labels: tuple[str, ...] = ("fedavg", "fedprox", "scaffold"),
    trials: int = 32,
    rounds: int = 200,
    seeds: int = 3,
    confirm: int = 8,
    every: int = 1,
) -> list[TrialCurve]:
    """A whole finished study: search at seed 0, the best of it again on fresh seeds."""
    found = []
    for index, label in enumerate(labels):
        generator = np.random.default_rng(index)
        configurations = []
        for _ in range(trials):
            client_lr = float(10 ** generator.uniform(-2.5, 0.0))
            local_steps = int(generator.choice([1, 5, 10, 50]))
            configurations.append((client_lr, local_steps, client_lr * local_steps**0.7 * (0.5 + 0.25 * index)))
        good = sorted(range(trials), key=lambda n: abs(np.log(configurations[n][2]) + 1.5))[:confirm]
        runs = [("search", number, 0, number) for number in range(trials)]
        runs += [("confirmation", n, 1 + n % seeds, good[n // seeds]) for n in range(confirm * seeds)]
        for phase, number, seed, configuration in runs:
            client_lr, local_steps, rate = configurations[configuration]
            columns, state = learning(rounds, rate, client_lr, seed, label, every)
            values = {"client_lr": client_lr, "local_steps": local_steps, "server.momentum": 0.9, "server_lr": 1.0}
            own = {"label": label, "phase": phase, "number": number, "seed": seed, "configuration": configuration}
            at, quality = columns.pop("round"), columns.pop("test_accuracy")
            found.append(curve(quality, rounds=at, state=state, hyperparameters=values, **own, **columns))
    return found
