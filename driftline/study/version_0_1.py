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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RESULT_KEYS = {
    "setting": "configuration",
    "settings": "configurations",
    "envelope": "frontier",
    "on_frontier": "pareto",
}


def study(document: Mapping[str, Any]) -> dict[str, Any]:
    """A study's document in today's spelling; one that has it already comes back equal."""
    new = dict(document)
    budget = new.get("budget")
    if isinstance(budget, Mapping) and "front" in budget:
        new["budget"] = {"confirm" if key == "front" else key: value for key, value in budget.items()}
    return new


def renamed(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first key of a study that is in the old spelling, and its new spelling; None where there is none."""
    budget = document.get("budget")
    if isinstance(budget, Mapping) and "front" in budget:
        return "budget.front", "budget.confirm"
    return None


def phase(name: str) -> str:
    """A trial's phase."""
    return "confirmation" if name == "front" else name


def event(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a study's event: progress counts trials by phase."""
    progress = data.get("progress")
    if not isinstance(progress, Mapping):
        return dict(data)
    labels = {label: {phase(key): value for key, value in counts.items()} for label, counts in progress.items()}
    return {**data, "progress": labels}


def frontier(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a frontier.json; one in today's spelling comes back as it is.

    Its definitions keep the words that they were written in, under today's keys.
    """
    definitions = document.get("definitions", {})
    if "envelope" not in definitions:
        return document
    kept = {{"envelope": "frontier", "frontier": "pareto"}.get(key, key): text for key, text in definitions.items()}
    return {**{key: _result(value) for key, value in document.items()}, "definitions": kept}


def _result(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            _RESULT_KEYS.get(key, key): phase(inner) if key == "phase" else _result(inner)
            for key, inner in value.items()
        }
    return [_result(item) for item in value] if isinstance(value, list) else value
