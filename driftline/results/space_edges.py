"""Recommended values at the edge of what was searched: a wider space may hold better ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.parameters import Choice, from_json

Json = Mapping[str, Any]

_SHARE = 0.02  # of the range, on its own scale
_NATURAL = (0, 1)  # smallest values that are natural limits, seldom chosen ones: no decay, a single step


def space_edges(result: Json) -> list[str]:
    """A line for each label whose recommendation for the largest cost has values at an edge of its space.

    Numbers of ranges count within 2 % of the range's ends, on its own scale; numbers of a choice if they are its
    smallest or largest one. Smallest values 0 and 1 do not count.

    Args:
        result: A document with its study as ``specification``; without it, there are no lines.
    """
    lines = []
    for entry in result.get("specification", {}).get("methods", ()):
        method = result["methods"].get(entry["label"])
        if method is None or not method["recommendations"]:
            continue
        number = method["recommendations"][-1]["configuration"]
        values = next((row for row in method["configurations"] if row["configuration"] == number), None)
        if values is None:
            continue
        spaces = dict(_spaces(entry))
        edges = [
            f"{name} {value:.4g} ({edge})"
            for name, value in values["hyperparameters"].items()
            if name in spaces and (edge := _edge(spaces[name], value))
        ]
        if edges:
            lines.append(f"{entry['label']}: {', '.join(edges)}")
    return lines


def _spaces(entry: Json) -> Iterator[tuple[str, Json]]:
    """Dotted name and form of every hyperparameter of an entry."""
    parts = [("", entry), *((f"{kind}.", part) for kind, part in entry.items() if isinstance(part, Mapping))]
    for prefix, part in parts:
        space = part.get("space")
        if isinstance(space, Mapping):
            yield from ((prefix + name, form) for name, form in space.items() if isinstance(form, Mapping))


def _edge(form: Json, value: Any) -> str:
    """Which edge of its space a value is at: smallest or largest; empty in between."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    parameter = from_json(form)
    if isinstance(parameter, Choice):
        options = [
            option for option in parameter.options if isinstance(option, int | float) and not isinstance(option, bool)
        ]
        if len(options) < 3:
            return ""
        low, high = min(options), max(options)
        low_end, high_end = value == low, value == high
    else:
        low, high = parameter.low, parameter.high
        if not low <= value <= high or low == high:  # one of the values in `also`
            return ""
        fraction = parameter.place(value)
        low_end, high_end = fraction <= _SHARE, fraction >= 1 - _SHARE
    if high_end:
        return "largest"
    return "smallest" if low_end and low not in _NATURAL else ""
