"""How far the clients' models go from the broadcast one, in every round.

    drift = mean over the cohort of  1/K sum_(k = 1 .. K) |y_(k+1) - x|^2,   y_(k+1) the model after k local steps

in the weights of the aggregation, K the client's own number of steps. One local step without client_lr has 0. None
where a round has no local loop, as that of maml and of pooled training. The last local loop of a round is run once
more; nothing is counted.

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
        view: of the round that has been done.
    """
    found = view.cohort.drift()
    if found is None:
        params = view.before.params
        return {"drift": params.new_full((params.shape[0],), math.nan).double()}
    return {"drift": view.cohort.mean(found).double()}
