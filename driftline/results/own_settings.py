"""Settings that an entry's trials have in place of the study's, which results and comparisons mention."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from driftline.study.spec import Study
from driftline.study.trial_settings import OWN

Json = Mapping[str, Any]
_WORDS = {"examples": "by their examples", "uniform": "equally"}


def own_settings(study: Study) -> dict[str, dict[str, Any]]:
    """Label -> settings, for the entries whose settings differ from the study's."""
    settings = {}
    for entry in study.methods:
        studys = {name: getattr(study, name) for name in OWN} | {"rounds": study.budget.rounds}
        values = {name: getattr(entry, name) for name in studys}
        settings[entry.label] = {
            name: value for name, value in values.items() if value is not None and value != studys[name]
        }
    return {label: changed for label, changed in settings.items() if changed}


def setting_notes(methods: Json, labels: Iterable[str] | None = None) -> list[str]:
    """A sentence or two for each label whose trials have settings of their own.

    Args:
        methods: The labels' parts of a result.
        labels: The labels that count; all by default.
    """
    notes = []
    for label in labels or methods:
        settings = dict(methods[label].get("settings", {}))
        weighting = settings.pop("weighting", None)
        if settings:
            listed = " and ".join(f"{name} {_words(value)}" for name, value in settings.items())
            notes.append(f"{label} has {listed} (its own).")
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
