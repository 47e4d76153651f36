"""The accuracy on all training data: the weighted mean over all clients of their accuracies, at every evaluation."""

from __future__ import annotations

from torch import Tensor

from trainers.engine.evaluation.views import ModelView

METRICS = ("train_accuracy",)
PASSES = 1.0
NEEDS = ("test_accuracy",)


def of_model(view: ModelView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the evaluated models.
    """
    return {"train_accuracy": view.train_accuracy}
