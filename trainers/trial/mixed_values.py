"""Mixed federated learning: how its methods' values belong together."""

from __future__ import annotations

from typing import Any

from trainers.errors import SpecError
from trainers.values import shown

_ROUNDING = 1e-9


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a mixed method, with those filled in that follow from others.

    federated_weight and central_weight have the sum 1: of one given the other follows, of none both are 1/2.
    central_steps are local_steps. Where clients have local_epochs, how long the server works does not follow:
    central_steps must then be given, or central_batch_size to a method without central_steps.

    Args:
        values: of one member, each within its own range.

    Raises:
        SpecError: weights of another sum, or nothing to tell how long the server works.
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
    found = {**values, "federated_weight": federated, "central_weight": central}
    if values.get("local_epochs") is not None:
        needed = "central_steps" if "central_steps" in values else "central_batch_size"
        if values[needed] is None:
            place = f"method.{needed}"
            raise SpecError(f"{place} must be given where clients have local_epochs, got none", place)
    elif "central_steps" in values and values["central_steps"] is None:
        found["central_steps"] = values["local_steps"]
    return found
