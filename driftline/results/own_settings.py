"""Entries whose trials have settings of their own, which results and comparisons say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from driftline.study.spec import Study
from driftline.study.trial_settings import OWN

Json = Mapping[str, Any]
_WORDS = {"examples": "by their examples", "uniform": "equally"}


def own_settings(study: Study) -> dict[str, dict[str, Any]]:
    """Label -> settings, of the entries that set others than the study."""
    settings = {}
    for entry in study.methods:
        studys = {name: getattr(study, name) for name in OWN} | {"rounds": study.budget.rounds}
        own = {name: getattr(entry, name) for name in studys}
        settings[entry.label] = {
            name: value for name, value in own.items() if value is not None and value != studys[name]
        }
    return {label: own for label, own in settings.items() if own}


def setting_notes(methods: Json, labels: Iterable[str] | None = None) -> list[str]:
    """A sentence or two for each label whose trials have settings of their own.

    Args:
        methods: The labels' parts of a result.
        labels: The labels that count; all by default.
    """
    notes = []
    for label in labels or methods:
        own = dict(methods[label].get("settings", {}))
        weighting = own.pop("weighting", None)
        if own:
            said = " and ".join(f"{name} {_words(value)}" for name, value in own.items())
            notes.append(f"{label} has {said} (its own).")
        if weighting:
            notes.append(
                f"{label} weights clients {_WORDS.get(weighting, weighting)} in training (its own weighting); "
                "all metrics have the study's weighting."
            )
    return notes


def _words(value: Any) -> str:
    """A setting in a sentence.

    Examples:
        >>> _words(20), _words({"share": 0.5, "kept": True})
        ('20', '(share 0.5, kept true)')
    """
    if not isinstance(value, Mapping):
        return str(value)
    return f"({', '.join(f'{key} {json.dumps(part)}' for key, part in value.items())})"
