"""Report lines: one JSON-compatible dict per round and trial."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Metrics = dict[str, Tensor]


def opening(evaluated: Metrics, client_lr: Tensor, server_lr: Tensor) -> Metrics:
    """The metrics of round 0, before any training: training loss and update norm are NaN.

    Args:
        evaluated: metrics of the initial model.
        client_lr: (T,) rate of the first round.
        server_lr: (T,) rate of the first round.
    """
    none = torch.full_like(client_lr, math.nan)
    return {"train_loss": none, "update_norm": none, "client_lr": client_lr, "server_lr": server_lr, **evaluated}


def lines(
    number: int,
    metrics: Metrics,
    counters: Mapping[str, NDArray[np.int64]],
    diverged: NDArray[np.bool_],
    members: NDArray[np.int64],
    wall_seconds: NDArray[np.float64],
) -> list[dict[str, Any]]:
    """The lines of one round, in the order of the slots. Values that are not finite become None.

    Args:
        number: number of server updates so far.
        metrics: name -> (T,), or (T, numbers).
        counters: name -> (T,).
        diverged: (T,).
        members: (T,) index of the member in each slot; slots with a negative index get no line.
        wall_seconds: training time of each member of the pack.
    """
    columns = {name: _finite(values.tolist()) for name, values in _on_the_cpu(metrics).items()}
    counted = {name: values.tolist() for name, values in counters.items()}
    numbers, seconds = members.tolist(), wall_seconds.tolist()
    rows = []
    for slot, member in enumerate(numbers):
        if member < 0:
            continue
        line: dict[str, Any] = {"round": number, "member": member}
        for column in (columns, counted):
            line.update({name: values[slot] for name, values in column.items()})
        line["diverged"] = bool(diverged[slot])
        line["wall_seconds"] = seconds[member]
        rows.append(line)
    return rows


def _on_the_cpu(metrics: Metrics) -> Metrics:
    """The metrics; several (T,) ones on another device are copied to the CPU in a single read."""
    names = [
        name
        for name, values in metrics.items()
        if not values.is_cpu and values.dim() == 1 and values.is_floating_point()
    ]
    if len(names) < 2:
        return metrics
    read = torch.stack([metrics[name].double() for name in names]).cpu()
    return {**metrics, **dict(zip(names, read, strict=True))}


def _finite(values: list[Any]) -> list[Any]:
    return [
        _finite(value) if isinstance(value, list) else (value if math.isfinite(value) else None) for value in values
    ]
