"""Hyperparameters that change nothing: the conditions that method, optimizers and schedule state, as one table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING
from typing import Any

from trainers.contracts import Inactive, Schedule
from trainers.trial.parts import DELTA_LR, REGISTRIES, TIED, offered
from trainers.trial.roles import ALONG, STATE

RATES = ("client_lr", "server_lr")
_STATE = f"client.{STATE.name}"
Rules = dict[str, list[dict[str, Any]]]


def inactive_rules(names: Mapping[str, str], given: Collection[str]) -> Rules:
    """Conditions at which a given hyperparameter changes no curve, whatever its value.

    Args:
        names: "method", "schedule" and roles of optimizers -> name of the plug-in.
        given: hyperparameters that configurations have, by dotted name; the others have their defaults. With
            "fragments" among them, clients continue from their own models, which client_lr moves.

    Returns:
        Dotted name -> conditions, each of them values of other given hyperparameters; one without values always holds.
        `inactive` applies them, with a further rule.
    """
    registries = {kind: REGISTRIES[kind]() for kind in names}
    stated: dict[str, Inactive] = {
        kind: registries[kind].constant(name, "INACTIVE", {}) for kind, name in names.items() if kind != "schedule"
    }
    rates = registries["schedule"].constant(names["schedule"], "RATES", Schedule.RATES)
    follows = {DELTA_LR.name, TIED.name, f"server.{ALONG.name}", "fragments"} & set(given)
    if rates != "kept" or registries["method"].constant(names["method"], "TIED", False) or follows:
        stated["method"] = {name: rule for name, rule in stated["method"].items() if name != "client_lr"}
    rules: Rules = {}
    if rates == "replaced":
        rules |= {name: [{}] for name in RATES if name in given}
    for kind, rule in stated.items():
        for name, conditions in rule.items():
            if (dotted := _dotted(kind, name)) in given:
                remaining = [_remaining(kind, names[kind], condition, given) for condition in conditions]
                if possible := [condition for condition in remaining if condition is not None]:
                    rules.setdefault(dotted, []).extend(possible)
    return rules


def inactive(rules: Mapping[str, list[dict[str, Any]]], values: Mapping[str, Any]) -> tuple[str, ...]:
    """The hyperparameters of a configuration that change nothing: together they may have any values.

    A condition on a hyperparameter that is itself inactive does not count: of a product of two zeros only one is free.

    Args:
        rules: from `inactive_rules`.
        values: the configuration, by dotted name.
    """
    free: list[str] = []
    for name, conditions in rules.items():
        if name in values and any(
            all(key not in free and values.get(key) == value for key, value in condition.items())
            for condition in conditions
        ):
            free.append(name)
    return tuple(free)


def _dotted(kind: str, name: str) -> str:
    return name if kind == "method" else f"{kind}.{name}"


def _remaining(kind: str, plugin: str, condition: Mapping[str, Any], given: Collection[str]) -> dict[str, Any] | None:
    """A condition without what defaults fulfil; None if a default contradicts it, or the role has no local steps."""
    left = {}
    for name, value in condition.items():
        steps = name == "local_steps" and kind != "method"
        dotted = name if steps else _dotted(kind, name)
        if steps and _STATE in given:
            left[_STATE] = STATE.default
        if dotted in given and not (steps and kind != "client"):
            left[dotted] = value
        elif steps or _default(kind, plugin, name) != value:
            return None
    return left


def _default(kind: str, plugin: str, name: str) -> Any:
    """The default of a hyperparameter; imports its module, and with it torch."""
    items = offered(REGISTRIES[kind]()[plugin], kind)
    return next((item.default for item in items if item.name == name), MISSING)
