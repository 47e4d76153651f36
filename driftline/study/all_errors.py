"""All errors of a study's file at once: those of its form, and those that `check` finds in parts without such errors.

A part with an error of form is replaced by one that is certainly valid, and the study is checked again without it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study import yaml_files
from driftline.study.spec import Study
from driftline.study.validation import Errors

_VALID: dict[str, Any] = {"name": "study", "task": "digits", "budget": {"trials_per_method": 1000, "rounds": 1000}}
_ENTRY = "fedavg"  # fits every task
_DEPENDENT = {"task": {"objective", "clients_per_round", "batch_size", "init", "evaluation"}, "budget": {"sampler"}}
"""Keys that can only be judged beside another key."""


def read_study(file: Path) -> Study:
    """A study from its file; imports the trainers and torch if there is an error.

    Raises:
        InvalidSpec: A line for each error, with the key, what must hold, and what was given.
        NotFound: There is no such file.
    """
    try:
        return Study.from_yaml(file)
    except InvalidSpec as error:
        errors = Errors()
        errors.add(error)
        document = yaml_files.read(file)
        if isinstance(document, dict) and isinstance(document.get("methods"), list):
            _collect(document, error, errors)
        errors.raise_any()
        raise


def _collect(document: dict[str, Any], error: InvalidSpec, errors: Errors) -> None:
    """Adds the errors of the parts that `error` does not name, and of those that these leave."""
    invalid: set[str] = set()
    while parts := {_part(path) for path, _ in error.errors} - invalid:
        invalid |= parts
        if "" in invalid or "methods" in invalid:
            return
        invalid |= {key for part in parts for key in _DEPENDENT.get(part, ())}
        valid = {key: value for key, value in document.items() if key in Study.model_fields and key not in invalid}
        methods = [
            {"name": _ENTRY, "label": f"entry-{index}"} if f"methods[{index}]" in invalid else entry
            for index, entry in enumerate(document["methods"])
        ]
        try:
            Study.from_json(_VALID | valid | {"methods": methods}).check()
            return
        except InvalidSpec as further:
            error = further
        except (MemoryError, OverflowError, RuntimeError, ValueError):  # of numbers that no machine can compute with
            return
        for path, problem in error.errors:
            if _part(path) not in invalid:
                errors.add(InvalidSpec(path, problem))


def _part(path: str) -> str:
    """The part of a study that a path is in: a key, or an entry such as ``methods[0]``."""
    return re.split(r"\.|(?<=\])", path, maxsplit=1)[0]
