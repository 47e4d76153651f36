"""FedGA's displacement relative to that of SCAFFOLD, displacement / (client_lr (local_steps - 1) / 2), in every round.

The denominator is the displacement with the second-order term of SCAFFOLD, which cancels the misalignment that local
steps add. Above 1 a round leads to less misalignment than gradient descent, below 1 to more. The ratio follows the
schedule's client_lr. It is None with one local step or client_lr 0, which add no misalignment.

Source: derived from theorems 4 and 5 of "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi,
Barba, Jaggi 2022).
"""

from __future__ import annotations

from torch import Tensor

from trainers.engine.evaluation.views import ChosenMethod, RoundView
from trainers.hyperparameters import describe

METRICS = ("displacement_ratio",)
_NEEDS = ("displacement", "client_lr", "local_steps")


def refuse(method: ChosenMethod) -> str | None:
    """Why this report is not possible with a method; None if it is.

    Args:
        method: the method of the trial.
    """
    if not set(_NEEDS) <= {item.name for item in describe(method.module.Hyper)}:
        return f"a method without {', '.join(_NEEDS[:2])} and {_NEEDS[2]}, as {method.name} is"
    return "local_epochs: give local_steps" if method.values["local_steps"][0] is None else None


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    hyper = view.hyper
    equivalent = hyper.client_lr.double() * (hyper.local_steps - 1).to(hyper.client_lr.device) / 2
    return {"displacement_ratio": (hyper.displacement.double() / equivalent).view(-1)}
