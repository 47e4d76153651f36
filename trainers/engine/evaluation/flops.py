"""Floating-point operations of a gradient: torch's count for products and convolutions."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from torch.utils.flop_counter import FlopCounterMode

from trainers.engine.oracles.oracle import Model

_known: WeakKeyDictionary[Model, float] = WeakKeyDictionary()


def gradient_flops(model: Model) -> float:
    """Operations of the loss and its gradient on one example, forward and backward; a multiply-add counts as 2.

    Products and convolutions count, elementwise operations do not; a quadratic with d parameters has 2 d^2. The count
    is taken from one gradient of the reference oracle ("autograd", else the model's first oracle).

    Args:
        model: the model with its data.
    """
    if model in _known:
        return _known[model]
    oracle = model.oracles.get("autograd", next(iter(model.oracles.values())))
    batch = model.source(0, 1, "with_replacement").round(0, np.zeros(1, np.int64)).batch(0, 1)
    params = model.start(None, 0).view(1, 1, -1)
    with FlopCounterMode(display=False) as counter:
        oracle.value_and_grad(params, batch)
    _known[model] = float(counter.get_total_flops())
    return _known[model]
