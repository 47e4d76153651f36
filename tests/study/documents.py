"""Documents of studies with one place changed."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any


def changed(document: Any, place: str | Sequence[Any], value: Any) -> Any:
    """A copy with a value at a place, such as methods[0].space.client_lr or its steps; Ellipsis takes the key out."""
    steps = re.findall(r"[^.\[\]]+", place) if isinstance(place, str) else place
    *folders, key = (int(step) if isinstance(place, str) and step.isdecimal() else step for step in steps)
    whole = copy.deepcopy(document)
    held = whole
    for folder in folders:
        held = held[folder] if isinstance(held, list) else held.setdefault(folder, {})
    if value is ...:
        del held[key]
    else:
        held[key] = value
    return whole


def at(place: str, said: str) -> str:
    """An error's line: what is said of a place, or of one below it if it begins with . or [."""
    return place + (said if said[0] in ".[" else f": {said}")
