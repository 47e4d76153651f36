"""Samplers by name, imported when they are asked for: only tpe needs Optuna."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from search_spaces.parameters import Space
from service.errors import InvalidSpec
from service.samplers.protocol import Sampler
from trainers.spelling import hint

NAMES = ("grid", "quasi_random", "random", "tpe")


def build(name: str, space: Space, objectives: Sequence[str], seed: int) -> Sampler:
    """A sampler that has heard nothing yet.

    Args:
        name: One of `NAMES`.
        space: What may be tried, by dotted name.
        objectives: Names of the values to maximise.
        seed: Of all its draws.

    Raises:
        InvalidSpec: No sampler of this name, or the space does not suit it.

    Examples:
        >>> from search_spaces.parameters import Choice
        >>> build("grid", {"local_steps": Choice((1, 5))}, ("quality", "speed"), seed=0).ask(0)
        {'local_steps': 1}
    """
    if name not in NAMES:
        raise InvalidSpec("sampler", f"no sampler {name!r}: {hint(name, NAMES)}")
    made: Sampler = importlib.import_module(f"service.samplers.{name}").Sampler(space, objectives, seed)
    return made
