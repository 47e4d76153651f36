"""FedGA: default space, and the grids of the paper, [C] in `search_spaces.alignment`. Displacement 0 would be FedAvg.

The paper tunes in three stages: displacement alone, first on a coarse and then on a fine grid, with FedAvg's best
hyperparameters; then everything else at the best displacement.
"""

from __future__ import annotations

from search_spaces import alignment, rates
from search_spaces.parameters import Choice, Float, Space, fixed


def default() -> Space:
    """Both rates on a log scale (client_lr also 0), 1 to 32 local steps and displacement from 1e-3 to 10."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
        "displacement": alignment.displacement(),
    }


def displacements(setting: Space, grid: Choice | Float) -> Space:
    """The first two stages: displacement alone, everything else fixed.

    Args:
        setting: Fixed values of the other hyperparameters.
        grid: alignment.coarse_displacements(), then iid_displacements() or unequal_displacements().
    """
    return {**setting, "displacement": grid}


def emnist(displacement: float) -> Space:
    """[C] section 5.1, last stage: 32 configurations for each of the batch sizes 240 and 2400.

    Args:
        displacement: The best of the first two stages.
    """
    return alignment.averaged((1, 10, 20, 40), displacement=fixed(displacement))


def cifar10(displacement: float) -> Space:
    """[C] section 5.2, last stage: 16 configurations at batch size 125.

    Args:
        displacement: The best of the first two stages.
    """
    return alignment.averaged((10, 20), displacement=fixed(displacement))
