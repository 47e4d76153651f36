"""The parts of a trial document that a study, an entry and configurations determine, for a number of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from driftline.study.entries import MethodEntry, PartEntry
from driftline.study.spec import Study
from trainers import REGISTRIES, offered, shown


def document_of(
    study: Study,
    label: str,
    configurations: Sequence[Mapping[str, Any]],
    seed: int,
    rounds: int,
    phase: Literal["search", "confirmation"] = "search",
) -> dict[str, Any]:
    """The document of trials of these rounds; see `driftline.study.trial_document.trial_document`."""
    entry = study.entry(label)
    parts: dict[str, dict[str, Any]] = {"method": {"name": entry.name}}
    parts |= {kind: {"name": part.name} for kind, part in entry.parts().items()}
    structural = structural_of(entry) if any(configurations) else {}  # imports the method, and with it torch
    for dotted, (kind, name) in structural.items():
        values = [hyperparameters[dotted] for hyperparameters in configurations if dotted in hyperparameters]
        if not values:
            continue
        if len(values) < len(configurations) or any(value != values[0] for value in values):
            raise ValueError(f"configurations of one pack must share {dotted}, got {shown(values)}")
        if kind != "trial":
            parts[kind][name] = values[0]
    if "rounds" in (REGISTRIES["schedule"]().constant(entry.schedule.name, "FOLLOWS") or {}) and not any(
        "schedule.rounds" in hyperparameters for hyperparameters in configurations
    ):
        parts["schedule"]["rounds"] = rounds  # rates stay the same if fewer rounds are trained
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


def structural_of(entry: MethodEntry) -> dict[str, tuple[str, str]]:
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
