"""Schedule-free gradient descent: steps from a point between the iterate and the mean of all iterates.

    y = (1 - beta) z + beta x;   z <- z - lr g(y);   x <- (1 - 1 / (t + 1)) x + z / (t + 1),   t = 0, 1, ...

Clients receive y; evaluations, reports and stored models use the mean x. The mean replaces a decaying rate, so that the
rate must be constant. beta 0 is gradient descent with the mean of its iterates, beta 1 steps from the mean itself. At
t = 0 the weight of x_0 is 0, so that the first step is plain. The memory is b = (x - z) / lr:

    b' = t / (t + 1) (b + g);   the direction is g - beta (b' - b);   x = y + (1 - beta) lr b'

Source: "The Road Less Scheduled" (Defazio et al. 2024), with the weights of its implementation; as a server of local
SGD, "Understanding Outer Optimizers in Local SGD" (Khaled et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.hyperparameters import tunable

_REASON = "models are evaluated at the mean of its iterates, and only the server's models are evaluated"
LINEAR = True
REFUSED = {"client": _REASON, "central": _REASON, "merge": _REASON}
SPACE = {"beta": {"float": [0.5, 0.98], "log": True, "complement": True}}


@dataclass(frozen=True)
class Hyper:
    """Settings of schedule-free gradient descent."""

    beta: Tensor = tunable(0.9, low=0, high=1, limit="0 averages plain steps", doc="share of the mean in y")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"behind": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    behind, count = memory["behind"], step.to(gradient) if isinstance(step, Tensor) else step
    memory["behind"] = (behind + gradient) * (count / (count + 1))
    return gradient.sub_(hyper.beta * (memory["behind"] - behind))


def averaged(hyper: Hyper, memory: dict[str, Tensor], rate: Tensor) -> Tensor:
    offset: Tensor = (1 - hyper.beta) * rate * memory["behind"]
    return offset
