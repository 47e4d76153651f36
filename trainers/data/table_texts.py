"""Inputs of text in a user's data: the keys of a document that say what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.data.words import Words
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

KEYS_OF_TEXTS = ("words", "context")
MOST_WORDS = 2**20
LONGEST = 2**16


def words_of(values: Mapping[str, Any], kind: str, path: str) -> Words | None:
    """What becomes of inputs of text; None if the document does not say that they are.

    Args:
        values: checked values of the document.
        kind: what the targets are.
        path: dotted path of the task.

    Raises:
        SpecError: a key is missing, or is for another kind of targets.
    """
    count, context, sentences = values["words"], values["context"], kind == "tokens"
    if count is not None and not isinstance(values["inputs"], str):
        place = join(path, "inputs")
        raise SpecError(f"{place} must be one column, of text, got inputs={shown(values['inputs'])}", place)
    for key in KEYS_OF_TEXTS:
        if sentences and values[key] is None:
            place = join(path, key)
            raise SpecError(f"{place} must be given for tokens, such as words: 10000 and context: 20, got none", place)
    if context is not None and not sentences:
        place = join(path, "context")
        raise SpecError(f"{place} must be left out for {kind}, got context={context}: it needs kind: tokens", place)
    for key in ("targets", "labels", "classes") if sentences else ():
        if values[key] is not None:
            place = join(path, key)
            got = f"{key}={shown(values[key])}"
            raise SpecError(f"{place} must be left out for tokens, which are the words of inputs, got {got}", place)
    if sentences and values["scale"] != "none":
        place = join(path, "scale")
        raise SpecError(f"{place} must be none for words, got scale={shown(values['scale'])}", place)
    return None if count is None else Words(count, context)
