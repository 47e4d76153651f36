"""What a server optimizer steps along: a sum of gradients, or the mean change of the clients' models.

    "method": {"name": "fedavg", "client_lr": 0.1, "delta_lr": 0.03, "local_steps": 10},
    "server": {"name": "adam", "epsilon": 0.001, "initial_accumulator": null, "bias_correction": false}

A pseudo-gradient q is a sum of gradients, and the mean change of the clients' models is -client_lr q. For linear
optimizers the change is only another rate, server_lr = delta_lr client_lr. The direction of an adaptive optimizer does
not grow with q: delta_lr is then its rate itself, and its settings are in the unit of the change, as in the papers. A
trial with `along` "change" is the trial along gradients whose settings in units of the gradient are divided by
client_lr, and those in units of its square by client_lr^2; that trial is what its canonical document holds. client_lr
is the one that the trial begins with.

Source: "Adaptive Federated Optimization" (Reddi et al. 2021), algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainers.contracts import Method, Optimizer
from trainers.errors import SpecError
from trainers.trial.parts import Part
from trainers.trial.roles import ALONG, POWERS


def along_gradients(method: Part[Method], server: Part[Optimizer]) -> tuple[Part[Method], Part[Optimizer]]:
    """Rewrites trials so that the server steps along gradients, with its rates as server_lr.

    Args:
        method: the method, with the delta_lr that were given.
        server: the server's optimizer, with `along` among its values if it is adaptive.

    Raises:
        SpecError: delta_lr with an adaptive optimizer whose units are unknown, or with `along` "gradient"; or `along`
            "change" without a client_lr above 0.
    """
    deltas, method = method.delta_lrs, replace(method, delta_lrs=())
    if server.module.LINEAR:
        return method, server
    along = server.values.get(ALONG.name)
    if (along is None or along[0] == "gradient") and any(delta is not None for delta in deltas):
        reason = "its step does not grow with the pseudo-gradient" if along is None else "it steps along: gradient"
        path = "method.delta_lr"
        raise SpecError(f"{path} must be left out with server {server.name}, got one: {reason}; give server_lr", path)
    if along is None:
        return method, server
    rates, columns = (
        list(method.values.get("server_lr", ())),
        {name: list(column) for name, column in server.values.items()},
    )
    del columns[ALONG.name]
    for member, delta in enumerate(deltas):
        if along[0] is None and delta is None:
            continue
        client_lr = method.values.get("client_lr", (None,) * method.members)[member]
        if not client_lr:
            path = "method.client_lr"
            raise SpecError(
                f"{path} must be above 0 with server.{ALONG.name}: change, which is client_lr times the "
                f"pseudo-gradient, got {'none' if client_lr is None else f'client_lr={client_lr:g}'}",
                path,
            )
        if delta is not None:
            rates[member] = delta
        for item in server.described:
            if (power := POWERS.get(item.unit)) is not None:
                columns[item.name][member] = _divided(columns[item.name][member], client_lr, power, item.name)
    values = {**method.values, **({"server_lr": tuple(rates)} if rates else {})}
    return replace(method, values=values), replace(
        server, values={name: tuple(column) for name, column in columns.items()}
    )


def check_followers(method: Part[Method], optimizers: Mapping[str, Part[Optimizer]]) -> None:
    """Refuses to take central_lr from a server_lr that is no rate of the branch: along the change, or from delta_lr.

    Args:
        method: the method, with the delta_lr that were given.
        optimizers: role -> optimizer, the server's with `along` among its values if it is adaptive.

    Raises:
        SpecError: no central_lr, while the server is adaptive and steps along the change, or while the optimizer of the
            branch is adaptive and its rate would be delta_lr times client_lr.
    """
    if "central" not in optimizers or None not in method.values.get("central_lr", ()):
        return
    server, delta = optimizers["server"], any(rate is not None for rate in method.delta_lrs)
    change = delta or server.values.get(ALONG.name, (None,))[0] == "change"
    for part in (server,) * change + (optimizers["central"],) * delta:
        if not part.module.LINEAR:
            path = "method.central_lr"
            raise SpecError(
                f"{path} must be given with {part.kind} {part.name}: server_lr, its default, is no rate of the "
                f"server's branch with {'delta_lr' if delta else 'along: change'}",
                path,
            )


def _divided(value: Any, client_lr: float, power: int, name: str) -> float:
    """Converts a setting from units of the change to units of the gradient."""
    divided = value
    for _ in range(power):
        divided /= client_lr
    if not math.isfinite(divided) or (value and not divided):
        raise SpecError(
            f"server.{name} must be a number in units of the gradient too, got {value:g} in those of the change with "
            f"client_lr={client_lr:g}",
            f"server.{name}",
        )
    return float(divided)
