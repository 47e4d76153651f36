"""The loss of all training data: the weighted mean over all clients of their mean losses, at every evaluation."""

from __future__ import annotations

from torch import Tensor

from trainers.engine.evaluation.views import ModelView

METRICS = ("full_loss",)
PASSES = 1.0


def of_model(view: ModelView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the evaluated models.
    """
    return {"full_loss": view.full_loss}
