"""Warnings about step sizes of mixed federated learning on quadratic tasks: outside the theorems, or unstable.

Imported only for such trials, because it imports trainers.theory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainers.contracts import Method, Optimizer, Schedule
from trainers.errors import SpecError
from trainers.problem import Quadratics, TaskSettings
from trainers.theory.clients import client_quadratics
from trainers.theory.mixed_limits import THEOREMS, QuadraticParts, least_delta_lr, parts, rate_limit
from trainers.theory.prediction import Predictor
from trainers.theory.rounds.central import central_of
from trainers.trial.parts import Part
from trainers.trial.roles import PLAIN

_SMALL = 32  # largest number of parameters for which a rate is computed for a warning


def mixed_remarks(
    method: Part[Method],
    optimizers: Mapping[str, Part[Optimizer]],
    schedule: Part[Schedule],
    task: TaskSettings,
    clients_per_round: int | None,
) -> list[str]:
    """Warnings about the step sizes of a mixed method; none if the curvatures are not known.

    Args:
        method: the method.
        optimizers: role -> optimizer.
        schedule: the schedule.
        task: settings of the task.
        clients_per_round: None is all clients.
    """
    central = task.central
    if not isinstance(central, Quadratics):
        return []
    members = [_filled(method, index) for index in range(method.members)]
    remarks = []
    if method.name in THEOREMS and _plain(optimizers):
        remarks += _beyond(method, members, task, clients_per_round or task.clients)
    settings = [
        {role: {"name": part.name, **part.member(index)} for role, part in optimizers.items()}
        for index in range(method.members)
    ]
    unstable = [_rate(task, values, by_role, schedule.name) for values, by_role in zip(members, settings, strict=True)]
    worst = max((rate for rate in unstable if rate is not None), default=0.0)
    if worst >= 1:
        remarks.append(
            f"method.server_lr and the other rates make rounds of {method.name} unstable: with exact gradients and all "
            f"clients, errors eventually grow by a factor of {worst:.4g} per round; use lower rates or fewer steps"
        )
    return remarks


def _plain(optimizers: Mapping[str, Part[Optimizer]]) -> bool:
    """Whether all steps are plain gradient steps; the theorems hold for no others."""
    return {part.name for part in optimizers.values()} == {PLAIN}


def _filled(method: Part[Method], index: int) -> dict[str, Any]:
    """A member's values as the trial uses them: tied rates are equal."""
    values = {"name": method.name, **method.member(index)}
    if method.tied:
        values["server_lr"] = values["client_lr"]
    return values


def _beyond(method: Part[Method], members: list[dict[str, Any]], task: Any, cohort: int) -> list[str]:
    """Warnings about members with step sizes outside the method's theorem."""
    most: tuple[float, float, float] | None = None
    short: tuple[float, float] | None = None
    for values in members:
        weight, steps = values["federated_weight"], values["local_steps"]
        if not 0 < weight < 1 or steps is None:
            continue
        losses = _parts(task, weight)
        merge_lr = values.get("merge_lr", 1.0) * (0.5 if values.get("merge_by") == "mean" else 1.0)
        limit = rate_limit(
            method.name,
            losses.smoothness,
            max(steps, values.get("central_steps") or 0),
            merge_lr=max(merge_lr, 1.0),
            dissimilarity_factor_sq=losses.least_factor_sq,
            strong_convexity=losses.strong_convexity,
        )
        rate = max(values["server_lr"], values.get("central_lr") or 0.0)
        excess = rate / limit if limit > 0 else math.inf
        if excess > 1 + 1e-12 and (most is None or excess > most[0]):
            most = (excess, rate, limit)
        least = least_delta_lr(cohort)
        delta_lr = values["server_lr"] / values["client_lr"] if values["client_lr"] else None
        if method.name == "one_way_transfer" and delta_lr is not None and delta_lr <= least:
            short = (delta_lr, least)
    theorem = f"theorem {THEOREMS[method.name]} of mixed federated learning"
    remarks = []
    if most is not None:
        what = "server_lr" if "central_lr" not in members[0] else "server_lr or central_lr"
        remarks.append(
            f"method.{what} is {most[1]:.4g}, above {most[2]:.4g}, the limit of {theorem} for these curvatures and "
            "steps: training may still converge"
        )
    if short is not None:
        remarks.append(
            f"method.delta_lr (server_lr / client_lr) is {short[0]:.4g}, but {theorem} holds above {short[1]:.4g}, "
            "the square root of 5/8 of the clients per round: the paper's own experiments use 1"
        )
    return remarks


@lru_cache(maxsize=8)
def _predictor(task: Any) -> Predictor:
    clients = client_quadratics(task.losses.hessians, task.losses.centers, task.client_weights)
    return Predictor(clients, 0.0, central_of(task.central))


@lru_cache(maxsize=32)
def _parts(task: Any, weight: float) -> QuadraticParts:
    predictor = _predictor(task)
    assert predictor.central is not None
    return parts(predictor.clients, predictor.central, weight)


def _rate(task: Any, values: Mapping[str, Any], optimizers: Mapping[str, Any], schedule: str) -> float | None:
    """The asymptotic rate of a setting; None if it has no closed form or is expensive to compute."""
    if task.dimension > _SMALL or task.clients * task.dimension > _SMALL**2:
        return None
    server = optimizers["server"]
    optimizers = {role: settings for role, settings in optimizers.items() if role != "server"}
    try:
        return _predictor(task).setting(values, server, schedule, optimizers).rate
    except SpecError:
        return None
