"""Remarks about step sizes of mixed federated learning on quadratic tasks: beyond the theorems, or not stable at all.

Imported only for such trials: it needs the theory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainers.contracts import Method, Optimizer, Schedule
from trainers.errors import SpecError
from trainers.problem import Quadratics, TaskSettings
from trainers.theory.clients import client_quadratics
from trainers.theory.mixed_limits import THEOREMS, Parts, least_delta_lr, parts, rate_limit
from trainers.theory.prediction import Predictor
from trainers.theory.rounds.central import central_of
from trainers.trial.parts import Part

_SMALL = 32  # parameters of models whose rate is worth computing for a remark


def mixed_remarks(
    method: Part[Method],
    optimizers: Mapping[str, Part[Optimizer]],
    schedule: Part[Schedule],
    task: TaskSettings,
    clients_per_round: int | None,
) -> list[str]:
    """Lines about the step sizes of a mixed method; none where the curvatures are not known.

    Args:
        method: of the trial.
        optimizers: of the trial, by role.
        schedule: of the trial.
        task: settings of the task.
        clients_per_round: None is all clients.
    """
    central = task.central
    if not isinstance(central, Quadratics):
        return []
    members = [_filled(method, index) for index in range(method.members)]
    found = []
    if method.name in THEOREMS and _plain(optimizers):
        found += _beyond(method, members, task, clients_per_round or task.clients)
    given = [
        {role: {"name": part.name, **part.member(index)} for role, part in optimizers.items()}
        for index in range(method.members)
    ]
    unstable = [_rate(task, values, own, schedule.name) for values, own in zip(members, given, strict=True)]
    worst = max((rate for rate in unstable if rate is not None), default=0.0)
    if worst >= 1:
        found.append(
            f"method.server_lr and the other rates make rounds of {method.name} unstable: with exact gradients and all "
            f"clients errors grow by {worst:.4g} a round in the end; take lower rates or fewer steps"
        )
    return found


def _plain(optimizers: Mapping[str, Part[Optimizer]]) -> bool:
    """Whether all steps are plain gradient steps, of which alone the theorems speak."""
    return {part.name for part in optimizers.values()} == {"sgd"}


def _filled(method: Part[Method], index: int) -> dict[str, Any]:
    """A member's values as the trial runs it; tied rates are equal."""
    values = {"name": method.name, **method.member(index)}
    if method.tied:
        values["server_lr"] = values["client_lr"]
    return values


def _beyond(method: Part[Method], members: list[dict[str, Any]], task: Any, cohort: int) -> list[str]:
    """Members beyond the step sizes of the method's theorem."""
    most: tuple[float, float, float] | None = None
    short: tuple[float, float] | None = None
    for values in members:
        weight, steps = values["federated_weight"], values["local_steps"]
        if not 0 < weight < 1 or steps is None:
            continue
        held = _parts(task, weight)
        merge_lr = values.get("merge_lr", 1.0) * (0.5 if values.get("merge_by") == "mean" else 1.0)
        limit = rate_limit(
            method.name,
            held.smoothness,
            max(steps, values.get("central_steps") or 0),
            merge_lr=max(merge_lr, 1.0),
            dissimilarity_factor_sq=held.least_factor_sq,
            strong_convexity=held.strong_convexity,
        )
        rate = max(values["server_lr"], values.get("central_lr") or 0.0)
        if rate > limit * (1 + 1e-12) and (most is None or rate / limit > most[0]):
            most = (rate / limit, rate, limit)
        least = least_delta_lr(cohort)
        delta_lr = values["server_lr"] / values["client_lr"] if values["client_lr"] else None
        if method.name == "one_way_transfer" and delta_lr is not None and delta_lr <= least:
            short = (delta_lr, least)
    theorem = f"theorem {THEOREMS[method.name]} of mixed federated learning"
    found = []
    if most is not None:
        what = "server_lr" if "central_lr" not in members[0] else "server_lr or central_lr"
        found.append(
            f"method.{what} is {most[1]:.4g}, above {most[2]:.4g}, up to which {theorem} speaks with these curvatures "
            "and steps: it may well converge all the same"
        )
    if short is not None:
        found.append(
            f"method.delta_lr (server_lr / client_lr) is {short[0]:.4g}, and {theorem} speaks above {short[1]:.4g}, "
            "the root of 5/8 of the clients of a round: the paper's own experiments take 1"
        )
    return found


@lru_cache(maxsize=8)
def _predictor(task: Any) -> Predictor:
    clients = client_quadratics(task.losses.hessians, task.losses.centers, task.client_weights)
    return Predictor(clients, 0.0, central_of(task.central))


@lru_cache(maxsize=32)
def _parts(task: Any, weight: float) -> Parts:
    known = _predictor(task)
    assert known.central is not None
    return parts(known.clients, known.central, weight)


def _rate(task: Any, values: Mapping[str, Any], optimizers: Mapping[str, Any], schedule: str) -> float | None:
    """The asymptotic rate of a setting; None where it has no closed form, or a dear one."""
    if task.dimension > _SMALL or task.clients * task.dimension > _SMALL**2:
        return None
    server = optimizers["server"]
    optimizers = {role: given for role, given in optimizers.items() if role != "server"}
    try:
        return _predictor(task).setting(values, server, schedule, optimizers).rate
    except SpecError:
        return None
