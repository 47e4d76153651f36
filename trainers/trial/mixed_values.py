"""Mixed federated learning: rules between the hyperparameters of its methods."""

from __future__ import annotations

from typing import Any

from trainers.errors import SpecError
from trainers.values import shown

_ROUNDING = 1e-9


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a mixed method, with missing ones filled in.

    federated_weight and central_weight sum to 1: if one is given, the other follows; if none is, both are 1/2.
    central_steps defaults to local_steps. With local_epochs there is no such default: central_steps must be given, or
    central_batch_size for a method without central_steps.

    Args:
        values: values of one member, each within its own range.

    Raises:
        SpecError: the weights do not sum to 1, or the server's amount of work is not given.
    """
    federated, central = values["federated_weight"], values["central_weight"]
    if federated is None:
        federated = 0.5 if central is None else 1 - central
    if central is None:
        central = 1 - federated
    if abs(federated + central - 1) > _ROUNDING:
        raise SpecError(
            f"method.central_weight must be 1 - federated_weight, got federated_weight={shown(federated)} and "
            f"central_weight={shown(central)}: leave one out",
            "method.central_weight",
        )
    completed = {**values, "federated_weight": federated, "central_weight": central}
    if values.get("local_epochs") is not None:
        needed = "central_steps" if "central_steps" in values else "central_batch_size"
        if values[needed] is None:
            path = f"method.{needed}"
            raise SpecError(f"{path} must be given with local_epochs, got none", path)
    elif "central_steps" in values and values["central_steps"] is None:
        completed["central_steps"] = values["local_steps"]
    return completed
