"""Replacements for the invalid parts of a study, with which it is read again to find all its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.study.budget import UNITS
from search_spaces import spaces
from trainers import (
    ABSENT,
    PLAIN,
    ROLES,
    STAND_IN_METHODS,
    STAND_IN_SCHEDULE,
    STAND_IN_TASKS,
    Changes,
    SpecError,
    Steps,
)

_PARTS = (*ROLES, "schedule")
_SCHEDULE = {"name": STAND_IN_SCHEDULE, "space": "default"}
_BUDGETS = ({"trials_per_method": 5040, "rounds": 1000}, {"trials_per_method": 10080, "rounds": 1500})
"""Numbers of trials that most numbers of searches and branches divide."""
_PLAIN: dict[Steps, Sequence[Any]] = {
    ("name",): ("study", "study"),
    ("task",): STAND_IN_TASKS,
    ("task", "name"): STAND_IN_TASKS,
    ("methods",): ([STAND_IN_METHODS[0]], [{"name": STAND_IN_METHODS[1], "schedule": _SCHEDULE}]),
    ("objective",): (ABSENT, {"quality": "train_loss"}),
    ("objective", "quality"): (ABSENT, "train_loss"),
    ("budget",): _BUDGETS,
    **{("budget", key): (_BUDGETS[0][key], _BUDGETS[1][key]) for key in _BUDGETS[0]},
    ("sampler",): (ABSENT, "random"),
    ("program",): (ABSENT, ABSENT),
    ("program", "command"): (["true"], ["true"]),
}
"""Replacements for the value at a place, one for each of two documents."""


def stand_ins(document: Any, steps: Steps) -> tuple[Sequence[Changes], Sequence[Changes]]:
    """Replacements for the value at a place of a study's document, for each of two documents, best first.

    Args:
        document: The document.
        steps: The place of the invalid value.
    """
    if steps in _PLAIN:
        target = steps[:1] if steps[0] == "task" else steps
        one, other = _PLAIN[steps]
        return [{target: one}], [{target: other}]
    if steps[0] == "budget" and steps[1:] and steps[1] in UNITS:
        emptied: dict[Steps, Any] = {("budget", key): ABSENT for key in (*UNITS, "rungs")}
        one, other = ([emptied | {("budget", "rounds"): budget["rounds"]}] for budget in _BUDGETS)
        return one, other
    if steps[:2] in (("program", "metrics"), ("program", "costs")):
        return _declared(document, steps[:2])
    if steps[0] == "sampler":
        return [{("sampler",): ABSENT}], [{("sampler",): "random"}]
    if steps[0] != "methods" or len(steps) < 2:
        return [], []
    entry, inner = document["methods"][steps[1]], steps[2:]
    if not isinstance(entry, dict) or not inner:
        whole = [{steps[:2]: {"name": name, "label": f"entry-{steps[1]}"}} for name in STAND_IN_METHODS]
        return whole[:1], whole[1:]
    if inner[0] in ("name", "preset"):
        gone = {(*steps[:2], key): ABSENT for key in ("preset", "space", "constraints", "start", "prior", "theory")}
        label = {(*steps[:2], "label"): f"entry-{steps[1]}"} if "label" not in entry else {}
        named = [{**gone, **label, (*steps[:2], "name"): name} for name in STAND_IN_METHODS]
        return named[:1], named[1:]
    if inner == ("label",):
        renamed = [{steps: f"entry-{steps[1]}"}]
        return renamed, renamed
    if inner[0] in _PARTS and (len(inner) == 1 or inner[1] == "name"):
        gone = {steps[:3]: ABSENT, **_naming(entry, str(inner[0]), steps[:2])}
        return [gone], [gone]
    if inner[-1] == "space":
        part = str(inner[0]) if len(inner) > 1 else ""
        gone = {steps: ABSENT, **_naming(entry, part, steps[:2])}
        return [gone], [gone]
    if "space" in inner:
        return _ranges(entry, steps)
    return [], []


def _naming(entry: Mapping[str, Any], part: str, steps: Steps) -> dict[Steps, Any]:
    """Removes the keys of an entry that may name settings of a part; "" is the method."""
    names = f"{part}." if part else ""
    return {(*steps, key): ABSENT for key in ("constraints", "start", "prior") if names in str(entry.get(key))}


def _declared(document: Mapping[str, Any], steps: Steps) -> tuple[Sequence[Changes], Sequence[Changes]]:
    """Metrics or costs in place of a program's: none that the objective names, then the one that it names."""
    objective = document.get("objective")
    metrics = steps[1] == "metrics"
    name = objective.get("quality" if metrics else "cost") if isinstance(objective, Mapping) else None
    chosen = name if isinstance(name, str) else "other"
    if metrics:
        return [{steps: {"measured": "rises"}}], [{steps: {chosen: "falls"}}]
    return [{steps: ABSENT}], [{steps: [chosen]}]


def _ranges(entry: Mapping[str, Any], steps: Steps) -> tuple[Sequence[Changes], Sequence[Changes]]:
    """A hyperparameter's default range in place of an invalid one, then the low end of this range."""
    part, key = (str(steps[2]), str(steps[4])) if steps[2] in _PARTS else ("methods", str(steps[3]))
    part_entry = entry if part == "methods" else entry.get(part)
    target = steps[: 5 if part != "methods" else 4]
    kind = next(kind for kind in spaces.KINDS if kind.removesuffix("s") == part.removesuffix("s"))
    try:
        name = part_entry.get("name", PLAIN) if isinstance(part_entry, Mapping) else part_entry
        form = spaces.default(kind, str(name)).get(key)
    except SpecError:
        form = None
    if form is None:
        return [], []
    return [{target: form.to_json()}], [{target: form.ends()[0]}]
