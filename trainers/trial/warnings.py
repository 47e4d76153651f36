"""Warnings about trials that are valid, but probably not what was meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainers.contracts import Method, Optimizer, Schedule
from trainers.problem import TaskSettings
from trainers.trial import adaptation
from trainers.trial.parts import Part

_RATIO = 10.0


def warnings(
    method: Part[Method],
    optimizers: Mapping[str, Part[Optimizer]],
    schedule: Part[Schedule],
    task: TaskSettings,
    values: Mapping[str, Any],
) -> list[str]:
    """One line for each setting that is allowed, but probably not meant.

    Args:
        method: the method.
        optimizers: role -> optimizer.
        schedule: the schedule.
        task: settings of the task.
        values: the checked keys of the document besides its objects.
    """
    client_lrs, server_lrs = method.values.get("client_lr", ()), method.values.get("server_lr", ())
    remarks = data_remarks(task, values)
    counts = method.values.get("local_steps", (None,) * len(client_lrs))
    ratios = [
        server_lr / client_lr
        for client_lr, server_lr, count in zip(client_lrs, server_lrs, counts, strict=False)
        if client_lr and server_lr is not None and count != 1 and _written(server_lr)  # one step does not use client_lr
    ]
    if optimizers["server"].module.LINEAR and ratios:
        remarks += [f"method.{text}" for text in rate_remark(max(ratios))]
    largest = task.smoothness
    if largest is not None:
        proxes = method.values.get("prox", (0.0,) * len(client_lrs))
        weights = method.values.get("federated_weight", (1.0,) * len(client_lrs))  # inside the loss
        high = max(
            (c * (w * largest + (p or 0.0)) for c, p, w in zip(client_lrs, proxes, weights, strict=True) if c),
            default=0.0,
        )
        if high >= 1:
            remarks.append(
                f"method.client_lr times the largest curvature of a client is {high:.4g}: at 1 or more, local steps "
                "overshoot on that client, and training may converge to a point far from the optimum"
            )
    for name in schedule.module.FOLLOWS:
        pairs = zip(schedule.values[name], method.values.get(name, schedule.values[name]), strict=True)
        if different := [(value, method_value) for value, method_value in pairs if method_value not in (None, value)]:
            value, method_value = different[0]
            remarks.append(
                f"schedule.{name} is {value}, but the method's is {method_value}: leave it out to use the method's"
            )
    if values["drop_last"] and all(epochs is None for epochs in method.values.get("local_epochs", ())):
        remarks.append("drop_last changes nothing without local_epochs: steps have batches of equal size")
    return [*remarks, *mixed(method, optimizers, schedule, task, values["clients_per_round"])]


def data_remarks(task: TaskSettings, values: Mapping[str, Any]) -> list[str]:
    """One line for each fact about the data, and what is drawn from it, that is probably not meant.

    Args:
        task: settings of the task.
        values: batch_size, batching and adaptation of the trial.
    """
    remarks = [*getattr(task, "notes", ()), *adaptation.warnings(values["adaptation"], task)]
    if task.examples is None:
        return remarks
    if task.clients == 1:
        remarks.append("task: there is one client, so that no models are averaged")
    middle = float(np.median(task.examples))
    batch_size = values["batch_size"]
    if batch_size is not None and batch_size > middle:
        advice = "leave it out for steps with all examples of a client"
        if values["batching"] == "by_class":
            advice = "their batches hold all their examples, not equally many of each class"
        remarks.append(
            f"batch_size is {batch_size}, more than most clients have (the median is {middle:g} examples): {advice}"
        )
    return remarks


def rate_remark(ratio: float) -> list[str]:
    """A remark on a server_lr that is `ratio` times client_lr, without its path; none below 10.

    Args:
        ratio: server_lr / client_lr.
    """
    if ratio < _RATIO * (1 - 1e-12):
        return []
    means = "it multiplies a sum of gradients; equal to client_lr it is model averaging (delta_lr is their ratio)"
    return [f"server_lr is {ratio:.4g} times client_lr, at least {_RATIO:g}: {means}"]


def _written(rate: float) -> bool:
    """Whether a rate is a round number, as people write it; a search seldom proposes one."""
    return float(f"{rate:.3g}") == rate


def mixed(
    method: Part[Method],
    optimizers: Mapping[str, Part[Optimizer]],
    schedule: Part[Schedule],
    task: TaskSettings,
    clients_per_round: int | None,
) -> list[str]:
    """Warnings about the step sizes of mixed federated learning, most of them only if the curvatures are known.

    Args:
        method: the method.
        optimizers: role -> optimizer.
        schedule: the schedule.
        task: settings of the task.
        clients_per_round: None is all clients.
    """
    remarks = []
    if "merge" in optimizers and not optimizers["merge"].module.LINEAR and 1.0 in method.values.get("merge_lr", ()):
        remarks.append(
            f"method.merge_lr is 1, its default, with merge {optimizers['merge'].name}: each parameter then moves by "
            "about 1 a round; give the size of a step"
        )
    if not method.module.CENTRAL or task.smoothness is None:
        return remarks
    from trainers.trial.mixed_warnings import mixed_remarks  # imported here: other trials do not need the theory

    return [*remarks, *mixed_remarks(method, optimizers, schedule, task, clients_per_round)]
