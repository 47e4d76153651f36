"""All errors of a trial's document, although reading it ends at the first one.

What an error names is replaced by something valid, and the document is read again. An error that may only come from a
replacement is not counted: beside another task, `clients_per_round` means something else.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import Hyperparameter, describe
from trainers.trial.document import TrialKeys, parse
from trainers.trial.parts import REGISTRIES, offered

_MOST = 20
_PARTS: dict[str, dict[str, Any]] = {
    "task": {"name": "digits"},
    "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 1},
}
"""What stands in for a part that has no name that is known."""

_OWN = {"rounds", "seed", "eval_every", "server", "schedule", *_PARTS}
"""Keys that mean the same beside any task and any method."""


def every_error(document: Mapping[str, Any], first: SpecError) -> list[SpecError]:
    """The errors of a document, at most 20, in the order in which they are met.

    Args:
        document: the document; stays as it is.
        first: what `parse` raised.
    """
    found, rest, error = [first], copy.deepcopy(dict(document)), first
    replaced: set[str] = set()
    for _ in range(2 * _MOST):
        if isinstance(error, MissingDataError) or not _mended(rest, error, replaced):
            break
        try:
            parse(rest)
            break
        except SpecError as further:
            error = further
        except (MemoryError, OverflowError, RuntimeError, ValueError, TypeError):  # of what no machine can compute with
            break
        known = any(_named(error) == _named(one) for one in found)
        top = error.path.partition(".")[0]
        if not known and not (replaced & {"task", "method"} and top not in _OWN) and len(found) < _MOST:
            found.append(error)
    return found


def _named(error: SpecError) -> str:
    """The place of an error; items of a task's lists are no places of their own."""
    return ".".join(error.path.split(".")[:2]) if error.path.startswith("task.") else error.path


def _mended(rest: dict[str, Any], error: SpecError, replaced: set[str]) -> bool:
    """Replaces what an error names by what is valid; whether anything has changed.

    Args:
        rest: the document, changed in place.
        error: its first error.
        replaced: parts that have been replaced, added to in place.
    """
    before = copy.deepcopy(rest)
    top, _, setting = error.path.partition(".")
    holder, key = _place(rest, error.path)
    meant = re.search(r"unknown key .*did you mean (\w+)\?", str(error))
    if holder is not None and key in holder and meant and meant[1] not in holder:
        holder[meant[1]] = holder.pop(key)
    elif top in ("task", "method") and setting in ("", "name"):
        rest[top] = dict(_PARTS[top])
        replaced.add(top)
    elif holder is not None:
        holder.pop(key, None)
        if (item := _described(rest, top).get(key)) is not None and item.default is MISSING:
            holder[key] = _valid(item)
        if top == "task":
            replaced.add(top)
    if rest == before and top in _PARTS and rest.get(top) != _PARTS[top]:  # what was there has not helped
        rest[top] = dict(_PARTS[top])
        replaced.add(top)
    return rest != before


def _place(rest: Any, path: str) -> tuple[dict[str, Any] | None, str]:
    """The mapping that holds what a path names, and its key; lists inside a value count as the value."""
    steps = path.split(".") if path else []
    holder: Any = rest
    for index, step in enumerate(steps[:-1]):
        inner = holder.get(step) if isinstance(holder, dict) else None
        if isinstance(inner, list) and step == "members" and steps[index + 1].isdigit():
            number = int(steps[index + 1])
            member = inner[number] if number < len(inner) else None
            return (member, ".".join(steps[index + 2 :])) if isinstance(member, dict) else (None, "")
        if not isinstance(inner, dict):
            return (holder, step) if isinstance(holder, dict) else (None, "")
        holder = inner
    return (holder, steps[-1]) if steps and isinstance(holder, dict) else (None, "")


def _described(rest: Mapping[str, Any], top: str) -> dict[str, Hyperparameter]:
    """The settings of the part of a document, or of the document itself."""
    part = rest.get(top)
    if top not in REGISTRIES or not isinstance(part, Mapping):
        return {item.name: item for item in describe(TrialKeys)}
    registry, name = REGISTRIES[top](), str(part.get("name"))
    return {item.name: item for item in offered(registry[name], top)} if name in registry else {}


def _valid(item: Hyperparameter) -> Any:
    """Some value in the range of a hyperparameter."""
    candidates = (*item.choices, 0.1, 1, 0.5, item.low, item.high, False, "x", [0.1], [1])
    for value in candidates:
        try:
            item.check(value, item.name)
        except SpecError:
            continue
        return value
    return item.low
