"""Builds the trial document that a trainer gets, from a study and configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from driftline.study.entries import MethodEntry, PartEntry
from driftline.study.spec import Study
from trainers import REGISTRIES, offered, shown


def trial_document(
    study: Study,
    label: str,
    configurations: Sequence[Mapping[str, Any]],
    seed: int,
    *,
    phase: Literal["search", "confirmation"] = "search",
) -> dict[str, Any]:
    """The document of a pack of trials: one entry, one seed, several configurations.

    Args:
        study: The study.
        label: Label of the entry.
        configurations: One configuration per member, by dotted name, all of one `structure`.
        seed: Seed of cohorts, batches and initial models.
        phase: Only search trials measure a sample of the held-out clients where the study asks for one.

    Returns:
        A trial document. Its ``members`` hold the values that may differ between them; each part holds the others.

    Raises:
        ValueError: No configuration, or configurations that cannot share a pack.
        InvalidSpec: No such label.
    """
    if not configurations:
        raise ValueError("a pack must have at least one configuration, got none")
    entry = study.entry(label)
    if study.program is not None:
        return _program_trial(study, label, configurations, seed)
    parts: dict[str, dict[str, Any]] = {"method": {"name": entry.name}}
    parts |= {kind: {"name": part.name} for kind, part in entry.parts().items()}
    structural = _structural(entry) if any(configurations) else {}  # reads the method, and so torch
    for dotted, (kind, name) in structural.items():
        values = [hyperparameters[dotted] for hyperparameters in configurations if dotted in hyperparameters]
        if not values:
            continue
        if len(values) < len(configurations) or any(value != values[0] for value in values):
            raise ValueError(f"configurations of one pack must share {dotted}, got {shown(values)}")
        if kind != "trial":
            parts[kind][name] = values[0]
    rounds = study.budget_of(entry).rounds
    if "rounds" in (REGISTRIES["schedule"]().constant(entry.schedule.name, "FOLLOWS") or {}) and not any(
        "schedule.rounds" in hyperparameters for hyperparameters in configurations
    ):
        parts["schedule"]["rounds"] = rounds  # whoever trains fewer rounds of this document keeps its rates
    document: dict[str, Any] = {"task": dict(study.task), **parts}
    settings = study.settings_of(entry, configurations[0])
    document |= {key: value for key, value in settings if value is not None}
    document |= {} if entry.weighting is None else {"training_weighting": entry.weighting}
    if phase == "search" and study.evaluation is not None:
        document["evaluation"] = study.evaluation
    members = [
        {key: value for key, value in hyperparameters.items() if key not in structural}
        for hyperparameters in configurations
    ]
    return document | {"rounds": rounds, "seed": seed, "members": members}


def _program_trial(study: Study, label: str, configurations: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """The document of one trial of a program: what it reads, and how to start it."""
    if len(configurations) > 1:
        raise ValueError(f"a program trains one trial, got {len(configurations)}")
    assert study.program is not None
    return {
        "label": label,
        "hyperparameters": dict(configurations[0]),
        "seed": seed,
        "rounds": study.budget.rounds,
        "quality": str(study.objective.quality),
        "program": study.program.to_json(),
    }


def structure(entry: MethodEntry, configuration: Mapping[str, Any]) -> str:
    """A string that is equal for configurations of an entry that may share a pack.

    They have the same structural values: `gradient_weights`, `server.nesterov` and other hyperparameters that the
    members of a pack cannot have one by one, and the sizes `clients_per_round` and `batch_size`.

    Args:
        entry: The entry.
        configuration: Values by dotted name.
    """
    shared = {dotted: configuration[dotted] for dotted in _structural(entry) if dotted in configuration}
    return json.dumps(shared, sort_keys=True)


def _structural(entry: MethodEntry) -> dict[str, tuple[str, str]]:
    """Dotted name -> (part, name in it) of the hyperparameters that all members of a pack must share.

    The part of a size is "trial": the document itself.
    """
    named: dict[str, MethodEntry | PartEntry] = {"method": entry, **entry.parts()}
    structural = _structural_of(tuple((kind, part.name) for kind, part in named.items()))
    return structural | {name: ("trial", name) for name in entry.sizes}


@lru_cache(maxsize=256)
def _structural_of(named: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, str]]:
    structural = {}
    for kind, name in named:
        registry, prefix = REGISTRIES[kind](), "" if kind == "method" else f"{kind}."
        if name in registry:
            for item in offered(registry[name], kind):
                if not item.traced:
                    structural[f"{prefix}{item.name}"] = (kind, item.name)
    return structural
