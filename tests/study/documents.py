"""Documents of studies with one place changed."""

import copy
import re
from collections.abc import Sequence
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from driftline.study.all_errors import study_of
from driftline.study.spec import Study


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


def mistake(document: Any) -> InvalidSpec:
    """The error of a wrong document, which is the same where all errors are searched for."""
    with pytest.raises(InvalidSpec) as alone:
        Study.from_json(document).check()
    with pytest.raises(InvalidSpec) as found:
        study_of(document).check()
    assert found.value.errors == alone.value.errors
    return alone.value


def at(place: str, said: str) -> str:
    """An error's line: what is said of a place, or of one below it if it begins with . or [."""
    return place + (said if said[0] in ".[" else f": {said}")
