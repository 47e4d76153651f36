"""Hyperparameters that methods share: a method's Hyper derives from one of these classes and adds its own.

A method redeclares a field that differs, and withdraws one that makes no sense (`trainers.hyperparameters.withdrawn`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainers.engine.local.work import LocalWork
from trainers.hyperparameters import tunable


@dataclass(frozen=True)
class ServerSteps:
    """Hyperparameters of every method. Methods whose clients send gradients and take no local steps need only these."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")
    clip_norm: Tensor | None = tunable(
        None,
        kind="float",
        low=0,
        low_open=True,
        none_is=math.inf,
        unit="norm of a gradient",
        limit="null is no clipping",
        doc="largest L2 norm of a local gradient, after any correction",
    )


@dataclass(frozen=True)
class LocalSteps(ServerSteps):
    """Hyperparameters of every method whose clients take local steps."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is FedSGD", doc="gradients a round")
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )

    def work(self, **terms: Any) -> LocalWork:
        """The local work with these settings.

        Args:
            terms: further fields of LocalWork from the method; they override these settings.
        """
        shared = ("client_lr", "local_steps", "local_epochs", "weight_decay", "clip_norm")
        return LocalWork(**{**{name: getattr(self, name) for name in shared}, **terms})
