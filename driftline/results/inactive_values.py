"""Values of a configuration that change nothing: another one gives the same curve, so results show "any"."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from driftline.study.spec import Study
from trainers import REGISTRIES, PluginError, inactive, inactive_rules

Json = Mapping[str, Any]


def stated_rules(study: Study) -> dict[str, Json]:
    """Label -> hyperparameter -> conditions, of the entries whose parts state any; see `trainers.inactive_rules`.

    An entry of a plug-in that is not installed here, or states it in another form, has none.
    """
    rules: dict[str, Json] = {}
    for entry in study.methods:
        parts = entry.parts()
        names = {"method": entry.name} | {kind: part.name for kind, part in parts.items()}
        if any(name not in REGISTRIES[kind]() for kind, name in names.items()):
            continue
        hyperparameters = [*entry.space, *(f"{kind}.{name}" for kind, part in parts.items() for name in part.space)]
        if (study.settings_of(entry).fragments or 1) > 1:
            hyperparameters.append("fragments")
        with contextlib.suppress(PluginError):  # what is stated there is not a literal
            if conditions := inactive_rules(names, hyperparameters):
                rules[entry.label] = conditions
    return rules


def inactive_values(method: Json, hyperparameters: Json) -> frozenset[str]:
    """The hyperparameters of a configuration that change nothing.

    Args:
        method: The label's part of a result.
        hyperparameters: The configuration.
    """
    return frozenset(inactive(method.get("inactive") or {}, hyperparameters))
