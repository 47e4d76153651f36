"""Adam on the clients, with bias correction.

    m <- client_beta1 m + (1 - client_beta1) g_k,   v <- client_beta2 v + (1 - client_beta2) g_k^2
    d_k = (m / (1 - client_beta1^k)) / (sqrt(v / (1 - client_beta2^k)) + client_epsilon),   k = 1 .. local_steps

m and v are 0 at the start of every round. client_beta1 and client_beta2 in [0, 1), client_epsilon above 0. The first
direction of a round is the sign of the gradient, where that is far above client_epsilon; with a large client_epsilon
and client_beta1 0 it is gradient descent with client_lr / client_epsilon. weight_decay is added to the gradients: that
of `adamw` is not.

Source: "Adam: A Method for Stochastic Optimization" (Kingma, Ba 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.client import _adam
from trainers.client._adam import direction_, init

__all__ = ["Hyper", "direction_", "init"]


@dataclass(frozen=True)
class Hyper(_adam.Settings):
    """Settings of Adam."""
