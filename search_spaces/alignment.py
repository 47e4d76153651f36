"""Ranges and grids that the methods of gradient alignment share.

[C] Dandi, Barba and Jaggi, "Implicit Gradient Alignment in Distributed and Federated Learning", section 5 and appendix
B.2. Its server takes the plain average of the local models: delta_lr is 1. Its batch sizes are a setting of the study.
"""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces.parameters import Choice, Float, Space, fixed


def displacement() -> Float:
    """Default range of displacement: [1e-3, 10] on a log scale; [C] finds 0.025 best for unequal clients, 2.5 for iid.

    0 is excluded: it would be the method without alignment.
    """
    return Float(1e-3, 10.0, log=True)


def averaged(local_steps: Sequence[int], **more: Choice) -> Space:
    """[C]'s grid of methods with local steps: 4 rates and 2 weight decays for each number of local steps.

    Args:
        local_steps: (1, 10, 20, 40) for EMNIST, (10, 20) for CIFAR-10.
        more: Further parameters of the method.
    """
    return {
        "client_lr": rates(),
        "delta_lr": fixed(1.0),
        "local_steps": Choice(tuple(local_steps)),
        "weight_decay": weight_decay(),
        **more,
    }


def rates() -> Choice:
    """The learning rates of [C]."""
    return Choice((0.05, 0.1, 0.2, 0.4))


def weight_decay() -> Choice:
    """The weight decays of [C], where 1e-3 was always better."""
    return Choice((1e-3, 1e-4))


def coarse_displacements() -> Choice:
    """The first grid of [C]."""
    return Choice((0.01, 0.1, 1.0, 5.0))


def iid_displacements() -> Choice:
    """The second grid of [C] for equal clients; 1.5 to 2.5 was best."""
    return Choice((0.5, 1.5, 2.5, 3.5))


def unequal_displacements() -> Choice:
    """The second grid of [C] for clients with one label each; 0.025 to 0.05 was best."""
    return Choice((0.01, 0.025, 0.05, 0.1))
