"""The spelling of Driftline 0.1, translated into today's: the only place that knows it.

One set of pure functions serves the migration of databases, the reading of old output folders, and the error that a
document in the old spelling gets.

| 0.1 | now |
|---|---|
| budget.front | budget.confirm |
| phase front, trial ids ....f00003 | phase confirmation, ....c00003 |
| setting, settings | configuration, configurations |
| envelope | frontier |
| on_frontier | pareto |

`trainers.trial.version_0_1` has the hyperparameters: optimizers of clients, of the server's branch and of the merge
were settings of the method.
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
    """A study's document in today's spelling; one that has it already comes back equal."""
    new = dict(document)
    budget = new.get("budget")
    if isinstance(budget, Mapping) and "front" in budget:
        new["budget"] = {"confirm" if key == "front" else key: value for key, value in budget.items()}
    if isinstance(new.get("methods"), list):
        new["methods"] = [_entry(item) if isinstance(item, Mapping) else item for item in new["methods"]]
    return new


def _entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """An entry in today's spelling; one that tunes the choice of an optimizer, which several entries do now, as it is.

    `Study` then names the key.
    """
    try:
        return entry(document)
    except SpecError:
        return dict(document)


def renamed(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first key of a study that is in the old spelling, and its new spelling; None where there is none."""
    budget = document.get("budget")
    if isinstance(budget, Mapping) and "front" in budget:
        return "budget.front", "budget.confirm"
    return None


def phase(name: str | None) -> str | None:
    """A trial's phase; None stays None."""
    return "confirmation" if name == "front" else name


def trial_id(name: str) -> str:
    """A trial's id: that of a confirmation trial tells its phase by another letter.

    Examples:
        >>> trial_id("01k6.fedavg.f00003"), trial_id("01k6.fedavg.s00012")
        ('01k6.fedavg.c00003', '01k6.fedavg.s00012')
    """
    return re.sub(r"\.f(\d{5,})$", r".c\1", name)


def event(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a study's event: progress counts trials by phase."""
    progress = data.get("progress")
    if not isinstance(progress, Mapping):
        return dict(data)
    labels = {label: {str(phase(key)): value for key, value in counts.items()} for label, counts in progress.items()}
    return {**data, "progress": labels}


def frontier(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a frontier.json; one in today's spelling comes back as it is.

    Its definitions and hyperparameters keep the words that they were written in.
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
