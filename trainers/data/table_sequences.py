"""The keys of a document for inputs that are texts or logs of items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.data.histories import Histories
from trainers.data.words import Words
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

KEYS_OF_SEQUENCES = ("words", "context", "order")
MOST_WORDS = 2**20
LONGEST = 2**16
NEXT = {"tokens": "the words of inputs", "pairs": "the next items of inputs"}
"""Kinds of targets that are taken from the inputs, and what these targets are."""

_EXAMPLES = {"words": "10000", "context": "20"}


def sequences_of(values: Mapping[str, Any], kind: str, path: str) -> Words | Histories | None:
    """The settings of inputs that are texts or items; None if the document does not say that they are.

    Args:
        values: checked values of the document.
        kind: what the targets are.
        path: dotted path of the task.

    Raises:
        SpecError: a key is missing, or is for another kind of targets.
    """
    count, context = values["words"], values["context"]
    needed = {"tokens": ("words", "context"), "pairs": ("context",)}.get(kind, ())
    optional = {"pairs": ("order",), "tokens": ()}.get(kind, ("words",))
    for key in KEYS_OF_SEQUENCES:
        key_path = join(path, key)
        if key in needed and values[key] is None:
            raise SpecError(f"{key_path} must be given for {kind}, such as {key}: {_EXAMPLES[key]}, got none", key_path)
        if key not in (*needed, *optional) and values[key] is not None:
            owner = " or ".join({"words": ("tokens",), "context": NEXT, "order": ("pairs",)}[key])
            got = f"{key}={shown(values[key])}"
            raise SpecError(f"{key_path} must be left out for {kind}, got {got}: it needs kind: {owner}", key_path)
    if (count is not None or kind in NEXT) and not isinstance(values["inputs"], str):
        key_path, what = join(path, "inputs"), "items" if kind == "pairs" else "text"
        raise SpecError(f"{key_path} must be one column, of {what}, got inputs={shown(values['inputs'])}", key_path)
    for key in ("targets", "labels", "classes") if kind in NEXT else ():
        if values[key] is not None:
            key_path = join(path, key)
            got = f"{key}={shown(values[key])}"
            raise SpecError(f"{key_path} must be left out for {kind}, which are {NEXT[kind]}, got {got}", key_path)
    if kind in NEXT and values["scale"] != "none":
        key_path = join(path, "scale")
        raise SpecError(f"{key_path} must be none for {kind}, got scale={shown(values['scale'])}", key_path)
    if kind == "pairs":
        return Histories(context)
    return None if count is None else Words(count, context)
