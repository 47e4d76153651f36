"""Which labels of a study may train in common packs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from driftline.study.budget import Budget
from driftline.study.sampler import STAGED, name_of

Families = tuple[tuple[str, ...], ...]
"""All labels of a study in order, those of a family together."""

_OF_ITS_CONFIGURATIONS = ("label", "space", "constraints", "start", "prior", "sampler", "theory")


def families(document: Mapping[str, Any], budget: Budget) -> Families:
    """Groups the labels whose trials may share packs, because they differ only in what members have one by one.

    Labels of a family have the same method, optimizers, schedule and settings, and the same names in their spaces;
    `driftline.study.trial_document.structure` decides which of their trials share a pack. With rungs or branches, every
    trial of a pack is computed alone, so that a wider pack saves nothing: every label is then a family of its own. So
    is a label that is tuned in stages, because it has its own generations.

    Args:
        document: A study in canonical form, from `Study.to_json`.
        budget: Its budget.
    """
    separate = "program" in document or len(budget.rung_amounts) > 1 or budget.branches > 1
    by_kind: dict[str, list[str]] = {}
    for entry in document.get("methods", ()):
        staged = name_of(entry.get("sampler", document.get("sampler", ""))) == STAGED
        alone = separate or staged or budget.asking != "generations"
        kind = str(entry["label"]) if alone else json.dumps(_kind(entry), sort_keys=True)
        by_kind.setdefault(kind, []).append(str(entry["label"]))
    return tuple(map(tuple, by_kind.values()))


def _kind(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without the values that its configurations have one by one."""
    kind = {
        key: [value["name"], sorted(value.get("space", ()))]
        if isinstance(value, Mapping) and "name" in value
        else value
        for key, value in entry.items()
        if key not in _OF_ITS_CONFIGURATIONS
    }
    return kind | {"space": sorted(entry.get("space", ()))}
