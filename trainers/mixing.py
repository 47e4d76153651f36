"""Mixed federated learning: how its methods' values belong together."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from trainers.errors import SpecError
from trainers.registry import servers
from trainers.scalars import shown

OPTIMIZERS = ("sgd", "adam", "yogi", "adagrad")
"""Of trainers/server, for the server's branch and the merge."""

_ROUNDING = 1e-9
_ROLES = ("central", "merge")
_SETTINGS = {"momentum": ("momentum", "beta1"), "epsilon": ("epsilon",)}


def setting_names(optimizer: str) -> dict[str, str]:
    """What momentum and epsilon are called in an optimizer; without those that it does not have.

    Args:
        optimizer: name in trainers/server.

    Examples:
        >>> setting_names("adam")
        {'momentum': 'beta1', 'epsilon': 'epsilon'}
    """
    known = {field.name for field in fields(servers()[optimizer].Hyper)}
    found = {name: [own for own in names if own in known] for name, names in _SETTINGS.items()}
    return {name: own[0] for name, own in found.items() if own}


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a mixed method, with those filled in that follow from others.

    federated_weight and central_weight have the sum 1: of one given the other follows, of none both are 1/2.
    central_steps are local_steps. Where clients have local_epochs, how long the server works does not follow:
    central_steps must then be given, or central_batch_size to a method without central_steps. Momentum and epsilon of
    the central and the merge optimizer are the optimizer's own where they are left out.

    Args:
        values: of one member, each within its own range.

    Raises:
        SpecError: weights of another sum, nothing to tell how long the server works, a setting that the chosen
            optimizer does not have.
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
    found = {**values, "federated_weight": federated, "central_weight": central, **_optimizers(values)}
    if values.get("local_epochs") is not None:
        needed = "central_steps" if "central_steps" in values else "central_batch_size"
        if values[needed] is None:
            place = f"method.{needed}"
            raise SpecError(f"{place} must be given where clients have local_epochs, got none", place)
    elif "central_steps" in values and values["central_steps"] is None:
        found["central_steps"] = values["local_steps"]
    return found


def _optimizers(values: dict[str, Any]) -> dict[str, Any]:
    """Momentum and epsilon of both optimizers, with their own defaults where they are left out."""
    found = {}
    for role in _ROLES:
        name = values.get(f"{role}_optimizer")
        if name is None:
            continue
        names = setting_names(name)
        defaults = {field.name: field.default for field in fields(servers()[name].Hyper)}
        for setting in _SETTINGS:
            place, given = f"{role}_{setting}", values[f"{role}_{setting}"]
            if given is not None and setting not in names:
                raise SpecError(
                    f"method.{place} must be left out for {name}, which has none, got {place}={shown(given)}",
                    f"method.{place}",
                )
            found[place] = defaults[names[setting]] if given is None and setting in names else given
    return found
