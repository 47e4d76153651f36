"""Adam on the clients with weight decay of its own, beside the gradients.

    d_k = (Adam's direction of g_k) + weight_decay y_k

The pull to 0 is not in g_k, so it is neither averaged, nor scaled, nor clipped. weight_decay 0 is `adam`, whose
settings it has; both means are 0 at the start of every round.

Source: "Decoupled Weight Decay Regularization" (Loshchilov, Hutter 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.client import _adam
from trainers.client._adam import direction_, init

__all__ = ["Hyper", "direction_", "init"]
DECOUPLED = True  # weight_decay is added to the directions, not to the gradients


@dataclass(frozen=True)
class Hyper(_adam.Settings):
    """Settings of AdamW."""
