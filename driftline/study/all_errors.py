"""All errors of a study at once, although a check ends at the first error of a part.

What an error names is replaced by something that is certainly valid, and the study is checked again without it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study import yaml_files
from driftline.study.spec import Study
from driftline.study.validation import Errors
from search_spaces import spaces
from trainers import ROLES, SpecError

_VALID: dict[str, Any] = {"name": "study", "task": "digits", "budget": {"trials_per_method": 1000, "rounds": 1000}}
ENTRY = "fedavg"
"""A method that fits every task."""
_DEPENDENT = {
    "task": ("objective", "clients_per_round", "batch_size", "init", "evaluation"),
    "task.clients": ("clients_per_round",),
    "budget": ("sampler",),
}
"""Keys that can only be judged beside another key."""
_AN_ENTRY = ("methods", 0)
_CHECKS = 8  # most checks of one study

Steps = tuple[str | int, ...]


def read_study(file: Path) -> Study:
    """A study from its file; imports the trainers and torch if there is an error.

    Raises:
        InvalidSpec: A line for each error, with the key, what must hold, and what was given.
        NotFound: There is no such file.
    """
    try:
        return Study.from_yaml(file)
    except InvalidSpec as error:
        document = yaml_files.read(file)
        if not isinstance(document, dict) or not isinstance(document.get("methods"), list) or document.get("program"):
            raise
        raise every_error(document, error, lambda study: study.check()) from None


def every_error(document: dict[str, Any], error: InvalidSpec, check: Callable[[Study], Any]) -> InvalidSpec:
    """An error of a study, with those that its other parts have.

    Args:
        document: The study, as it was given or in its canonical form.
        error: Its first errors.
        check: Raises an InvalidSpec for a study of the right form.
    """
    errors = Errors()
    errors.add(error)
    rest = _Rest(document)
    for _ in range(_CHECKS):
        if not rest.without(error):
            break
        try:
            check(Study.from_json(rest.document))
            break
        except InvalidSpec as further:
            error = rest.named(further)
            fresh = [(path, problem) for path, problem in error.errors if rest.independent(path, problem)]
            if fresh:
                errors.add(InvalidSpec(*fresh[0], fresh[1:]))
        except (MemoryError, OverflowError, RuntimeError, ValueError):  # of numbers that no machine can compute with
            break
    try:
        errors.raise_any()
    except InvalidSpec as every:
        return every
    return error


class _Rest:
    """A study's document without what was found to be wrong.

    Args:
        document: The study; stays as it is.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = copy.deepcopy({key: value for key, value in document.items() if key in Study.model_fields})
        self._gone: set[Steps] = {(key,) for key in document if key not in Study.model_fields}
        self._before: dict[str, Any] | None = None
        self._meant: set[Steps] = set()  # what misspelled keys probably are, which are then missing
        self._places: dict[Steps, list[int]] = {}  # of the items that a list still has

    def without(self, error: InvalidSpec) -> bool:
        """Replaces what the errors name by what is valid; whether anything has changed."""
        before, self._before = self._before, copy.deepcopy(self.document)
        for path, problem in error.errors:
            steps = _steps(path)
            if steps and (meant := re.search(r"did you mean (\w+)\?", problem)):
                self._meant.add((*steps[:-1], meant[1]))
            if steps in ((), ("methods",)):
                return False
            if not any(steps[: len(gone)] == gone for gone in self._gone):
                self._replace(steps)
        return self.document != self._before or before is None

    def named(self, error: InvalidSpec) -> InvalidSpec:
        """The error with the places that items of lists have in the whole document."""
        return error.moved(lambda path: _dotted(self._original(_steps(path))) if "[" in path else path)

    def independent(self, path: str, problem: str) -> bool:
        """Whether an error cannot come from what was replaced: neither its place nor its words name that."""
        steps = _steps(path)
        if steps in self._meant:
            return False
        for gone in self._gone:
            item = isinstance(gone[-1], int) and len(gone) > len(_AN_ENTRY)  # the rest of its list is judged
            shorter = len(gone) if item else min(len(gone), len(steps))
            if gone[:shorter] == steps[:shorter]:
                return False
            if gone[:2] == steps[:2] and (f'"{gone[-1]}"' in problem or (gone[-1] == steps[-1] and not item)):
                return False
        return True

    def _replace(self, steps: Steps) -> None:
        part = steps[0]
        if part == "methods":
            self._replace_in_entry(steps)
            return
        held: Any = self.document.get(str(part))
        valid = _VALID.get(str(part))
        whole = len(steps) == 1 or not isinstance(held, dict) or steps[1] not in held or steps[1] == "name"
        if whole:
            steps = steps[:1]
            self.document.pop(str(part), None)
            if valid is not None:
                self.document[str(part)] = valid
        else:
            steps = steps[:2]
            del held[steps[1]]
            if isinstance(valid, dict) and steps[1] in valid:
                held[steps[1]] = valid[str(steps[1])]
        self._gone.add(steps)
        dependent = _DEPENDENT.get(str(part), ()) if whole or part == "budget" else _DEPENDENT.get(_dotted(steps), ())
        methods = self.document.get("methods")
        for key in dependent:
            self.document.pop(key, None)
            self._gone.add((key,))
            for index, entry in enumerate(methods if isinstance(methods, list) else ()):
                space = entry.get("space") if isinstance(entry, dict) else None
                for holder, place in ((entry, ()), (space, ("space",))):
                    if isinstance(holder, dict) and key in holder:
                        del holder[key]
                        self._gone.add(("methods", index, *place, key))

    def _replace_in_entry(self, steps: Steps) -> None:
        index = int(steps[1])
        entry = self.document["methods"][index]
        inner = steps[2:]
        if not isinstance(entry, dict) or not inner or inner[0] in ("name", "label", "preset"):
            self.document["methods"][index] = {"name": ENTRY, "label": f"entry-{index}"}
            self._gone.add(steps[:2])
            return
        if inner[0] in ROLES and (len(inner) == 1 or inner[1] == "name"):
            entry.pop(inner[0], None)
            self._gone.add(steps[:3])
            return
        holder: Any = entry
        for depth, step in enumerate(inner):
            here = steps[: 2 + depth]
            if isinstance(holder, list) and isinstance(step, int):
                kept = self._places.setdefault(here, list(range(len(holder))))
                if step in kept:
                    del holder[kept.index(step)]
                    kept.remove(step)
                self._gone.add((*here, step))
                return
            default = _default(entry, str(step)) if inner[0] == here[-1] == "space" else None
            if not isinstance(holder, dict) or (step not in holder and default is None):
                break
            if depth == len(inner) - 1 or here[-1] == "space":
                holder.pop(step, None)
                if default is not None:
                    holder[step] = default
                self._gone.add((*here, step))
                return
            holder = holder[step]
        self.document["methods"][index] = {"name": ENTRY, "label": f"entry-{index}"}
        self._gone.add(steps[:2])

    def _original(self, steps: Steps) -> Steps:
        for place, kept in self._places.items():
            number = steps[len(place)] if len(steps) > len(place) and steps[: len(place)] == place else None
            if isinstance(number, int) and number < len(kept):
                return (*place, kept[number], *steps[len(place) + 1 :])
        return steps


def _default(entry: dict[str, Any], name: str) -> Any:
    """The default range of a method's hyperparameter; None without one."""
    try:
        form = spaces.default("methods", str(entry.get("name", ENTRY))).get(name)
    except SpecError:
        return None
    return None if form is None else form.to_json()


def _steps(path: str) -> Steps:
    """A path in parts.

    Examples:
        >>> _steps("methods[0].space.client_lr")
        ('methods', 0, 'space', 'client_lr')
    """
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path))


def _dotted(steps: Steps) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
