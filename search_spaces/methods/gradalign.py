"""GradAlign: what may be tried, and the paper's grid. Displacement 0 would be FedSGD."""

from __future__ import annotations

from search_spaces import alignment, rates
from search_spaces.parameters import Space, fixed


def default() -> Space:
    """server_lr on a log scale, displacement from 1e-3 to 10."""
    return {"server_lr": rates.server_lr(), "displacement": alignment.displacement()}


def cifar10(displacement: float) -> Space:
    """[C] section 5.2, fewest updates: 8 settings for each of the batch sizes 1000 and 5000.

    Args:
        displacement: found before, with the other hyperparameters at large-batch SGD's best; 1.5 to 2.5 was best.
    """
    return {
        "server_lr": alignment.rates(),
        "weight_decay": alignment.weight_decay(),
        "displacement": fixed(displacement),
    }
