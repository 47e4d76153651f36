"""Misalignment of the gradients of a round's clients at the start of the round, in every round.

    cohort_misalignment = 1/2 sum_i w_i |g_i - g|^2,   g = sum_i w_i g_i,   over the cohort, weights summing to 1

at the model before the round, on the data of train_loss: the clients' first batches, or all their data with loss_data
"full". It is 0 for a single client. Every round computes one more gradient of every client, which no counter counts.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), section 4, with
the clients of the round instead of all clients.
"""

from __future__ import annotations

from torch import Tensor

from trainers.engine.evaluation.views import RoundView

METRICS = ("cohort_misalignment",)


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    gradients = view.gradients
    gaps = (gradients - view.cohort.measured_mean(gradients)).double().square().sum(-1)
    return {"cohort_misalignment": view.cohort.measured_mean(gaps.to(gradients)).double() / 2}
