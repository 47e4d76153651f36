"""Adam with decoupled weight decay.

    the direction is Adam's direction for g plus weight_decay y, with y the client's model

The decay is not in g, so it is neither averaged, nor scaled, nor clipped. weight_decay is a setting of the method; 0 is
`adam`, which has the same settings. Only clients have weight decay, so it serves no other role.

Source: "Decoupled Weight Decay Regularization" (Loshchilov, Hutter 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.optimizers import adam
from trainers.optimizers.adam import DEFAULTS, complete, descend_, direction_, init

__all__ = ["DECOUPLED", "DEFAULTS", "REFUSED", "Hyper", "complete", "descend_", "direction_", "init"]
DECOUPLED = True
REFUSED = dict.fromkeys(("server", "central", "merge"), "weight_decay acts on clients only, and without it it is adam")
SPACE = {
    "beta1": {"float": [0.0, 0.99], "log": True, "complement": True},
    "epsilon": {"float": [1e-8, 1e-3], "log": True},
}
INACTIVE = {"initial_accumulator": ({"beta2": 0},)}


@dataclass(frozen=True)
class Hyper(adam.Hyper):
    """Settings of AdamW."""
