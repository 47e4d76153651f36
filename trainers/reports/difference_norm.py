"""How far the first client's gradient is from the mean gradient, at every evaluation: |g - g_1|, not squared.

g and g_1 are of all clients, weighted, and of the task's first client, on all their data, at the model of the line: the
one that the next round starts from. An evaluation costs a gradient of all training data; nothing is counted.

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
        view: of the models that are evaluated.
    """
    return {"difference_norm": view.spread.difference_norm}
