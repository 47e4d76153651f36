"""Rounds of local work on a model of tokens, as a plain loop of torch over its module."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

SEED = 7


def follow(
    lines: list[dict[str, Any]], model: Any, source: Any, local: Callable[[nn.Module, Any, int], None]
) -> nn.Module:
    """A trial's models are the means of what `local` makes of a module for each client; the module of the last one.

    Args:
        lines: report lines of the trial, with params.
        model: the network.
        source: its batches, all clients in each round.
        local: trains the module on the batches of one place.
    """
    module = model.make().double()
    held, weights = dict(module.named_parameters()), model.sizes / model.sizes.sum()
    broadcast = model.layout.views(model.start(None, SEED))

    def load() -> None:
        with torch.no_grad():
            for key, value in broadcast.items():
                held[key].copy_(value)

    for number, line in enumerate(lines[1:]):
        batches = source.round(number, np.arange(len(weights)))
        mean = {key: torch.zeros_like(value) for key, value in broadcast.items()}
        for place, client in enumerate(batches.clients.tolist()):
            load()
            local(module, batches, place)
            for key in mean:
                mean[key] += weights[client] * held[key].detach()
        broadcast = mean
        flat = torch.cat([broadcast[entry.name].flatten() for entry in model.layout.entries])
        assert torch.tensor(line["params"], dtype=torch.float64).allclose(flat, rtol=1e-10, atol=1e-10)
    load()
    return module
