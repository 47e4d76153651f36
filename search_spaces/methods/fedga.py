"""FedGA: what may be tried, and the paper's grids. Displacement 0 would be FedAvg.

The paper tunes in three stages: displacement alone, coarsely and then finely, at FedAvg's best setting; then all else
at the displacement found.
"""

from __future__ import annotations

from search_spaces import alignment, rates
from search_spaces.parameters import Choice, Float, Space, fixed


def default() -> Space:
    """Both rates on a log scale (client_lr 0 too), 1 to 32 local steps and displacement from 1e-3 to 10."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
        "displacement": alignment.displacement(),
    }


def displacements(setting: Space, grid: Choice | Float) -> Space:
    """The first two stages: displacement alone, everything else at a setting that was found before.

    Args:
        setting: fixed values of the other hyperparameters.
        grid: alignment.coarse_displacements(), then iid_displacements() or unequal_displacements().
    """
    return {**setting, "displacement": grid}


def emnist(displacement: float) -> Space:
    """[C] section 5.1, last stage: 32 settings for each of the batch sizes 240 and 2400.

    Args:
        displacement: found in the first two stages.
    """
    return alignment.averaged((1, 10, 20, 40), displacement=fixed(displacement))


def cifar10(displacement: float) -> Space:
    """[C] section 5.2, last stage: 16 settings at batch size 125.

    Args:
        displacement: found in the first two stages.
    """
    return alignment.averaged((10, 20), displacement=fixed(displacement))
