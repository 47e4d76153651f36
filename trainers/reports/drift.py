"""Client drift: mean squared distance of the clients' models from the broadcast one, in every round.

    drift = mean over the cohort of  1/K sum_(k = 1 .. K) |y_(k+1) - x|^2,   y_(k+1) the model after k local steps

with the weights of all metrics, and K the client's own number of steps. One local step with client_lr 0 has drift
0. None if a round has no local loop, as in maml and pooled training. The last local loop of a round is run again, which
no counter counts.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), equation 12.
"""

from __future__ import annotations

import math

from torch import Tensor

from trainers.engine.evaluation.views import RoundView

METRICS = ("drift",)


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    drift = view.cohort.drift()
    if drift is None:
        params = view.before.params
        return {"drift": params.new_full((params.shape[0],), math.nan).double()}
    return {"drift": view.cohort.measured_mean(drift).double()}
