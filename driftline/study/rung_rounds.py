"""The rungs of a study: rounds at which search trials are compared, and after which only promising ones continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from driftline.errors import InvalidSpec
from trainers import SpecError, integer, shown

FACTOR = 3
"""`auto`: each rung has this many times the rounds of the one before; about one trial in `FACTOR` passes a rung."""

AUTO = 3
"""`auto`: most rungs, the last round included."""


def read_rungs(value: Any) -> Any:
    """Checks the form of `budget.rungs`: "auto", a list of whole numbers, or None."""
    if value is None or value == "auto":
        return value
    try:
        return [integer(rung, "") for rung in value] if isinstance(value, list | tuple) else integer("", "")
    except SpecError:
        raise ValueError(f"must be auto or a list of increasing rounds, got {shown(value)}") from None


def rungs_of(given: Literal["auto"] | Sequence[int], rounds: int) -> tuple[int, ...]:
    """The rungs as increasing rounds; the last one is the last round.

    Args:
        given: "auto" for a geometric series; or increasing rounds, to which the last round is added if it is missing.
        rounds: Rounds of a trial.

    Raises:
        InvalidSpec: The rounds do not increase, or one is not between 1 and `rounds`.

    Examples:
        >>> rungs_of("auto", 200), rungs_of([25, 75], 200), rungs_of("auto", 2)
        ((22, 66, 200), (25, 75, 200), (2,))
    """
    if isinstance(given, str):
        return tuple(rung for power in reversed(range(AUTO)) if (rung := rounds // FACTOR**power) > 0)
    whole = (*given, rounds) if not given or given[-1] != rounds else tuple(given)
    rising = all(low < high for low, high in zip((0, *whole), whole, strict=False))
    if not given or not rising:
        rule = f"must be auto or a list of increasing rounds from 1 to rounds={shown(rounds)}"
        raise InvalidSpec("rungs", f"{rule}, got {shown(list(given))}")
    return whole
