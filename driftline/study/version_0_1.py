"""Translates the names of Driftline 0.1 into the present ones; no other module of driftline knows them.

The same pure functions serve the migration of databases, the reading of old output folders, and the errors for
documents with old names.

| 0.1 | now |
|---|---|
| budget.front | budget.confirm |
| phase front, trial ids ....f00003 | phase confirmation, ....c00003 |
| setting, settings | configuration, configurations |
| envelope | frontier |
| on_frontier | pareto |

`trainers.trial.version_0_1` translates hyperparameters: in 0.1, the optimizers of clients, of the server's branch and
of the merge were settings of the method.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trainers import SpecError
from trainers.trial.version_0_1 import entry, hyperparameters, trial

__all__ = ["RENAMED", "event", "frontier", "hyperparameters", "phase", "renamed", "study", "trial", "trial_id"]

RENAMED = {
    "setting": "configuration",
    "settings": "configurations",
    "envelope": "frontier",
    "on_frontier": "pareto",
    "front": "confirmation",
}
"""Keys of results and API answers."""


def study(document: Mapping[str, Any]) -> dict[str, Any]:
    """A study's document with the present names; a present document is returned equal."""
    new = dict(document)
    budget = new.get("budget")
    if isinstance(budget, Mapping) and "front" in budget:
        new["budget"] = {"confirm" if key == "front" else key: value for key, value in budget.items()}
    if isinstance(new.get("methods"), list):
        new["methods"] = [_entry(item) if isinstance(item, Mapping) else item for item in new["methods"]]
    return new


def _entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with the present names.

    An entry that tunes the choice of an optimizer, which now needs several entries, is returned unchanged; `Study` then
    reports the key.
    """
    try:
        return entry(document)
    except SpecError:
        return dict(document)


def renamed(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first old key in a study, and its new name; None if there is none."""
    budget = document.get("budget")
    if isinstance(budget, Mapping) and "front" in budget:
        return "budget.front", "budget.confirm"
    return None


def phase(name: str | None) -> str | None:
    """A trial's phase; None stays None."""
    return "confirmation" if name == "front" else name


def trial_id(name: str) -> str:
    """A trial's id; the letter for confirmation trials has changed.

    Examples:
        >>> trial_id("01k6.fedavg.f00003"), trial_id("01k6.fedavg.s00012")
        ('01k6.fedavg.c00003', '01k6.fedavg.s00012')
    """
    return re.sub(r"\.f(\d{5,})$", r".c\1", name)


def event(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a study's event, with the phases in its progress renamed."""
    progress = data.get("progress")
    if not isinstance(progress, Mapping):
        return dict(data)
    labels = {label: {str(phase(key)): value for key, value in counts.items()} for label, counts in progress.items()}
    return {**data, "progress": labels}


def frontier(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a frontier.json; a present document is returned unchanged.

    The texts of the definitions, and the hyperparameters, keep their old names.
    """
    definitions = document.get("definitions", {})
    if "envelope" not in definitions:
        return document
    kept = {{"envelope": "frontier", "frontier": "pareto"}.get(key, key): text for key, text in definitions.items()}
    return {**{key: _result(value) for key, value in document.items()}, "definitions": kept}


def _result(value: Any) -> Any:
    if isinstance(value, Mapping):
        changed: dict[str, Callable[[Any], Any]] = {"phase": phase, "trial": trial_id}
        return {RENAMED.get(key, key): changed.get(key, _result)(inner) for key, inner in value.items()}
    return [_result(item) for item in value] if isinstance(value, list) else value
