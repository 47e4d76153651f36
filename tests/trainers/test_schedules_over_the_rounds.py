"""Warm-up and fall over all rounds, `cosine` and `linear`: against a plain loop, step by step."""

import math
from typing import Any

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .documents import wrong
from .methods.three_clients import CENTERS, HESSIANS, START, document, models

WORK = {"client_lr": 0.1, "server_lr": 0.08, "local_steps": 4}
ROUNDS = 10
RISE_AND_FALL = {"warmup": 0.23, "floor": 0.05}


def shaped(name: str, step: int, steps: int, warmup: float = 0.23, floor: float = 0.05) -> float:
    """The factor of a step, from 0, of so many, as in the schedules' modules."""
    rise = warmup * steps
    p = min(max((step - rise) / (steps - rise), 0), 1)
    fall = 1 - p if name == "linear" else (1 + math.cos(math.pi * p)) / 2
    return (min(1.0, (step + 1) / rise) if rise else 1.0) * (floor + (1 - floor) * fall)


def plain_loop(name: str, rates: str, last_only: bool = False) -> np.ndarray:
    """Models of local steps at their own rates, and of Nesterov momentum on the server as torch.optim.SGD has it."""
    model, velocity, path = np.array(START), np.zeros(2), [START]
    for number in range(ROUNDS):
        sent = []
        for hessian, center in zip(HESSIANS, CENTERS, strict=True):
            point = model
            for step in range(number * 4, number * 4 + 4):
                gradient = hessian @ (point - center)
                factor = 1.0 if rates == "server_lr" else shaped(name, step, ROUNDS * 4)
                point = point - WORK["client_lr"] * factor * gradient
            sent.append(gradient if last_only else (model - point) / WORK["client_lr"])
        velocity = 0.9 * velocity + np.mean(sent, 0)
        factor = 1.0 if rates == "client_lr" else shaped(name, number, ROUNDS)
        model = model - WORK["server_lr"] * factor * (np.mean(sent, 0) + 0.9 * velocity)
        path.append(model)
    return np.array(path)


def trained(name: str, rates: str | None, method: dict[str, Any]) -> np.ndarray:
    schedule = {"name": name, **RISE_AND_FALL, **({} if rates is None else {"rates": rates})}
    server = {"name": "sgd", "momentum": 0.9, "nesterov": True}
    given = document(method, server=server, schedule=schedule, rounds=ROUNDS, dtype="float64")
    return models(Pack.from_spec(parse(given)).advance())


@pytest.mark.parametrize("rates", [None, "client_lr", "server_lr", "both"])
@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_every_step_has_its_rate(name: str, rates: str | None) -> None:
    wanted = plain_loop(name, rates or "client_lr")
    assert trained(name, rates, {"name": "fedavg", **WORK}) == pytest.approx(wanted, rel=0, abs=1e-12)


@pytest.mark.parametrize("method", [{"name": "fomaml"}, {"name": "local_update", "gradient_weights": [0.0, 0, 0, 1]}])
def test_a_single_gradient_counts_fully_as_its_step_moves_nothing(method: dict[str, Any]) -> None:
    method = {**method, "client_lr": 0.1, "server_lr": 0.08, **({"local_steps": 4} if len(method) == 1 else {})}
    wanted = plain_loop("cosine", "client_lr", last_only=True)
    assert trained("cosine", None, method) == pytest.approx(wanted, rel=0, abs=1e-12)


def test_methods_without_client_lr_fall_on_the_server() -> None:
    method = {"name": "fedsgd", "server_lr": 0.08}
    wanted = np.array([0.08 * shaped("cosine", number, ROUNDS) for number in range(ROUNDS)])
    given = document(method, schedule={"name": "cosine", **RISE_AND_FALL}, rounds=ROUNDS)
    spec = parse(given)
    assert spec.canonical["schedule"] == {"name": "cosine", **RISE_AND_FALL, "rates": "server_lr", "rounds": ROUNDS}
    assert [line["server_lr"] for line in Pack.from_spec(spec).advance()][1:] == pytest.approx(wanted, rel=1e-14)


def test_lines_have_the_rate_of_the_first_step_and_the_floor_stays_after_the_last_round() -> None:
    schedule = {"name": "linear", "warmup": 0.3, "floor": 0.2, "rounds": 6}
    lines = Pack.from_spec(parse(document({"name": "fedavg", **WORK}, schedule=schedule, rounds=9))).advance()
    wanted = [0.1 * shaped("linear", 4 * number, 24, 0.3, 0.2) for number in range(9)]
    assert [line["client_lr"] for line in lines] == pytest.approx([wanted[0], *wanted], rel=1e-14)
    assert lines[-1]["client_lr"] == pytest.approx(0.02, rel=1e-14)
    assert {line["server_lr"] for line in lines} == {0.08}


TIED = {"name": "fedavg", "client_lr": 1, "local_steps": 2, "tied": True}


@pytest.mark.parametrize(
    ("method", "rates", "message"),
    [
        ({"name": "fedsgd", "server_lr": 1}, "both", "schedule.rates must be server_lr for fedsgd, which has"),
        ({"name": "local_sgd", "client_lr": 1, "local_steps": 2}, "both", "must be client_lr for local_sgd"),
        (TIED, "server_lr", "schedule.rates must be client_lr for fedavg, whose server_lr follows client_lr, got"),
    ],
)
def test_rates_that_the_method_does_not_have_are_refused(method: dict[str, Any], rates: str, message: str) -> None:
    assert message in str(wrong(document(method, schedule={"name": "cosine", "rates": rates})))
