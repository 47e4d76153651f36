"""Adam with decoupled weight decay.

    the direction is Adam's direction for g plus weight_decay y, with y the model that steps

The decay is not in g, so it is neither averaged, nor scaled, nor clipped. On clients weight_decay is a setting of the
method, and y is the client's model; in the other roles it is a setting of the optimizer, so that `fedsgd` with `adamw`
on the server is data-parallel AdamW. 0 is `adam`.

Source: "Decoupled Weight Decay Regularization" (Loshchilov, Hutter 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.hyperparameters import tunable
from trainers.optimizers import adam
from trainers.optimizers.adam import DEFAULTS, complete, descend_, direction_, init

__all__ = ["ABSENT", "DECOUPLED", "DEFAULTS", "SPACES", "Hyper", "complete", "descend_", "direction_", "init"]
DECOUPLED = True
ABSENT = {"client": ("weight_decay",)}  # clients use the method's
SPACE = {
    "beta1": {"float": [0.0, 0.99], "log": True, "complement": True},
    "epsilon": {"float": [1e-5, 0.1], "log": True},
    "weight_decay": {"float": [1e-4, 0.3], "log": True, "also": [0.0]},
}
SPACES = {"client": {"epsilon": {"float": [1e-8, 1e-3], "log": True}}}
INACTIVE = {"initial_accumulator": ({"beta2": 0},)}


@dataclass(frozen=True)
class Hyper(adam.Hyper):
    """Settings of AdamW."""

    weight_decay: Tensor = tunable(0.01, low=0, limit="0 is adam", doc="times the model, added to the direction")
