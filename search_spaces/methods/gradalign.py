"""GradAlign: default space, and the grid of [C] in `search_spaces.alignment`. Displacement 0 would be FedSGD."""

from __future__ import annotations

from search_spaces import alignment, rates
from search_spaces.parameters import Space, fixed


def default() -> Space:
    """server_lr and displacement on log scales, the latter from 1e-3 to 10."""
    return {"server_lr": rates.server_lr(), "displacement": alignment.displacement()}


def cifar10(displacement: float) -> Space:
    """[C] section 5.2, fewest updates: 8 configurations for each of the batch sizes 1000 and 5000.

    Args:
        displacement: The best one with large-batch SGD's best hyperparameters; 1.5 to 2.5 in the paper.
    """
    return {
        "server_lr": alignment.rates(),
        "weight_decay": alignment.weight_decay(),
        "displacement": fixed(displacement),
    }
