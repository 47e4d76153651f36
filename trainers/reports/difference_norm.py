"""Distance of the first client's gradient from the mean gradient, |g - g_1|, not squared, at every evaluation.

g is the weighted mean gradient of all clients and g_1 the gradient of the task's first client, on all their data, at
the model after the line's round. An evaluation computes a gradient of all training data, which no counter counts.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), figures 5, 7, 9.
"""

from __future__ import annotations

from torch import Tensor

from trainers.engine.evaluation.views import ModelView

METRICS = ("difference_norm",)
PASSES = 3.0


def of_model(view: ModelView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the evaluated models.
    """
    return {"difference_norm": view.spread.difference_norm}
