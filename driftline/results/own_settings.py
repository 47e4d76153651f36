"""Entries that train with a weighting of their own, which results and comparisons say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from driftline.study.spec import Study

Json = Mapping[str, Any]
_WORDS = {"examples": "by their examples", "uniform": "equally"}


def own_weightings(study: Study) -> dict[str, str]:
    """Label -> weighting, of the entries that set another one than the study."""
    entries = ((entry.label, entry.weighting) for entry in study.methods)
    return {label: own for label, own in entries if own is not None and own != study.weighting}


def weighting_notes(methods: Json, labels: Iterable[str] | None = None) -> list[str]:
    """A sentence for each label that trains with a weighting of its own.

    Args:
        methods: The labels' parts of a result.
        labels: The labels that count; all by default.
    """
    own = {label: methods[label].get("weighting") for label in labels or methods}
    return [
        f"{label} weights clients {_WORDS.get(said, said)} in training (its own weighting); "
        "all metrics have the study's weighting."
        for label, said in own.items()
        if said
    ]
