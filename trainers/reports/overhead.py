"""Computation of clients and server since the start, in every round.

    client_examples    examples in all mini-batch gradients of the clients
    central_gradients  mini-batch gradients of the server's own loss (mixed federated learning)
    central_examples   examples in these
    client_flops       the operations of the gradients of client_examples; all clients together
    server_flops       the operations of the gradients of central_examples

An operation is an addition or a multiplication of a matrix product or a convolution (engine/evaluation/flops.py);
elementwise operations, optimizers and evaluations are not counted. A loss without data, of a client or the server,
counts as one example, with operations of its own. Every line also has bytes, exchanges and, as `examples`, the clients'
examples, without this report.

Source: table 5 and section 5.3 of "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein
et al. 2022).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.evaluation.flops import gradient_flops
from trainers.engine.evaluation.views import RoundView
from trainers.engine.rounds.counters import JOINED, OVERHEAD

METRICS = (*OVERHEAD, "client_flops", "server_flops")


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    totals = view.cohort.counters.totals
    counts = {name: torch.from_numpy(totals[name].copy()) for name in OVERHEAD}
    flops_per_example = gradient_flops(view.model)
    cost = view.cohort.example_cost
    work = {
        "client_flops": totals["client_examples"] + (cost - 1) * totals[JOINED],
        "server_flops": cost * totals["central_examples"],
    }
    return {**counts, **{name: torch.from_numpy(examples * flops_per_example) for name, examples in work.items()}}
