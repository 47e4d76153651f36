"""Every error of a trial document: wrong parts are replaced by stand-ins, and the document is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainers.errors import SpecError
from trainers.hyperparameters import Hyperparameter, describe
from trainers.replacements import ABSENT, Changes, Steps, every_error
from trainers.trial.document import TrialKeys, parse
from trainers.trial.parts import REGISTRIES, offered
from trainers.trial.roles import ROLES

STAND_IN_TASKS: tuple[dict[str, Any], ...] = ({"name": "digits"}, {"name": "linear_regression"})
"""Tasks for every method without server data; either one stands in for a task that cannot be read."""
STAND_IN_METHODS = ("fedavg", "feddyn")
"""Methods for every task, with the same hyperparameters for rates and steps."""

STAND_IN_KEYS: dict[Any, tuple[str, Any]] = {"delta_lr": ("server_lr", 0.1), "local_epochs": ("local_steps", 1)}
"""Key of a method -> the key that may be given in its place, and a value for that key."""

STAND_IN_SCHEDULE = "plateau"
"""A schedule with a range in its default space."""


def trial_errors(document: Mapping[str, Any]) -> list[SpecError]:
    """Every error of a trial document, in the order in which they are met; empty if it is valid.

    Args:
        document: the document; not changed.
    """
    raised: dict[tuple[str, str], SpecError] = {}

    def read(mended: dict[str, Any]) -> list[tuple[str, str]]:
        try:
            parse(mended)
        except SpecError as error:
            raised.setdefault((error.path, str(error)), error)
            return [(error.path, str(error))]
        except (MemoryError, OverflowError, RuntimeError, ValueError, TypeError):  # values too large for any machine
            pass
        return []

    return [SpecError(problem, path) for path, problem in every_error(document, read, _stand_ins)]


def _stand_ins(document: Any, steps: Steps) -> tuple[Sequence[Changes], Sequence[Changes]]:
    top, setting = steps[0], steps[1] if len(steps) > 1 else "name"
    if top == "task" and setting == "name":
        return [{("task",): STAND_IN_TASKS[0]}], [{("task",): STAND_IN_TASKS[1]}]
    if top == "method" and setting == "name":
        without_members: Changes = {("members",): ABSENT}
        settings = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}
        one, other = ({("method",): {"name": name, **settings}, **without_members} for name in STAND_IN_METHODS)
        return [one], [other]
    if top == "method" and setting in STAND_IN_KEYS:
        key, value = STAND_IN_KEYS[setting]
        instead: Changes = {steps: ABSENT, ("method", key): value}
        return [instead], [instead]
    if top in (*ROLES, "schedule") and setting == "name":
        gone: Changes = {(top,): ABSENT, ("members",): ABSENT}
        return [gone], [gone]
    item = _described(document, str(top), str(steps[-1]))
    if item is None or not item.choices:
        return [], []
    return [], [{steps: item.choices[-1]}]


def _described(document: Any, part: str, name: str) -> Hyperparameter | None:
    """The declaration of a setting of a part, or of a key of the document itself; None if there is none."""
    items = describe(TrialKeys)
    if part in REGISTRIES:
        registry, settings = REGISTRIES[part](), document.get(part)
        chosen = settings.get("name") if isinstance(settings, Mapping) else None
        items = offered(registry[chosen], part) if isinstance(chosen, str) and chosen in registry else ()
    return next((item for item in items if item.name == name), None)
