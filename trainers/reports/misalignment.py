"""Misalignment of the clients' gradients: half their weighted variance, at every evaluation.

    misalignment = 1/2 sum_i w_i |g_i - g|^2,   g = sum_i w_i g_i,   g_i = grad f_i(x) on all data of client i

over all clients of the task, with the weights of the trial (uniform: 1 / (2 n) sum |g_i - g|^2), at the model after the
line's round. Methods of gradient alignment minimize full_loss + displacement misalignment; 0 means that all gradients
agree. An evaluation computes a gradient of all training data, which no counter counts.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), section 4.
"""

from __future__ import annotations

from torch import Tensor

from trainers.engine.evaluation.views import ModelView

METRICS = ("misalignment",)
PASSES = 3.0


def of_model(view: ModelView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the evaluated models.
    """
    return {"misalignment": view.spread.misalignment}
