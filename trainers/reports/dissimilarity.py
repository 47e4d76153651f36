"""Dissimilarity of the clients' and the server's losses in mixed federated learning, in every round.

With a the gradient of the clients' weighted loss over the cohort, b that of the server's weighted loss, both at the
model before the round, and w and 1 - w the weights:

    dissimilarity_offset_sq = |a|^2 / w + |b|^2 / (1 - w) - |a + b|^2       estimates G^2 for B = 1; at least 0
    dissimilarity_factor_sq = (|a|^2 / w + |b|^2 / (1 - w)) / |a + b|^2     estimates B^2 for G = 0; at least 1

of (G, B) dissimilarity. Both harm parallel training, and neither harms the gradient transfers. The gradients are on the
data of train_loss: first batches, or all data with loss_data "full". The paper reports the largest values of rounds 10
to 100 with one local step, over 5 runs. Every round computes one more gradient of every client and of the server, which
no counter counts.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), section 4.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.evaluation.views import ChosenMethod, RoundView

METRICS = ("dissimilarity_offset_sq", "dissimilarity_factor_sq")


def refuse(method: ChosenMethod) -> str | None:
    """Why this report is not possible with a method; None if it is.

    Args:
        method: the method of the trial.
    """
    return None if method.module.CENTRAL else f"a method without data of the server, as {method.name}"


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    hyper, params = view.hyper, view.before.params
    federated = view.cohort.measured_mean(view.gradients)[:, 0].double()
    shared = view.cohort.central.peek(params, torch.ones_like(hyper.central_weight), view.data)[:, 0].double()
    weight, central_weight = hyper.federated_weight.view(-1, 1).double(), hyper.central_weight.view(-1, 1).double()
    # the difference of squares would cancel all digits if the losses agree
    offset = (weight * central_weight * (federated - shared).square()).sum(-1)
    whole = (weight * federated + central_weight * shared).square().sum(-1)
    return {"dissimilarity_offset_sq": offset, "dissimilarity_factor_sq": 1 + offset / whole}
