"""The rungs of a study: where search trials are compared, and after which only promising ones continue.

Rungs are rounds, or amounts in the unit of the budget, which `scaled` turns into rounds of each trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from driftline.errors import InvalidSpec
from driftline.study.validation import Section
from trainers import SpecError, integer, shown

FACTOR = 3
"""`auto`: each rung has this many times the rounds of the one before; about one trial in `FACTOR` passes a rung."""

AUTO = 3
"""`auto`: most rungs, the last round included."""

_MOST = 32  # most rungs that may be given; a million trials are down to one after 14


def _places(value: Any) -> Any:
    if value == "auto":
        return value
    try:
        return [integer(rung, "") for rung in value] if isinstance(value, list | tuple) else integer("", "")
    except SpecError:
        raise ValueError(f"must be auto or a list of increasing numbers, got {shown(value)}") from None


class RungsByRule(Section):
    """`budget.rungs` with another rule than halving.

    Attributes:
        at: The rungs: "auto", or increasing rounds or amounts.
        rule: Decides which trials continue: "halving", "extrapolation" or "forecast".
    """

    at: Annotated[Literal["auto"] | list[int], BeforeValidator(_places)] = "auto"
    rule: Literal["halving", "extrapolation", "forecast"] = "halving"


def read_rungs(value: Any) -> Any:
    """Checks the form of `budget.rungs`: "auto", a list of whole numbers, these with a rule, or None.

    Examples:
        >>> read_rungs({"at": [25, 75], "rule": "halving"})
        [25, 75]
    """
    if isinstance(value, Mapping):
        value = RungsByRule(**value)
    if isinstance(value, RungsByRule):
        return value.at if value.rule == "halving" else value
    return None if value is None else _places(value)


def rungs_of(rungs: Literal["auto"] | Sequence[int], rounds: int, unit: str = "rounds") -> tuple[int, ...]:
    """The rungs as increasing rounds; the last one is the last round.

    Args:
        rungs: "auto" for a geometric series; or increasing rounds, to which the last round is added if it is missing.
        rounds: Rounds of a trial, or the amount of another unit that it may spend.
        unit: The unit.

    Raises:
        InvalidSpec: The rounds do not increase, one is not between 1 and `rounds`, or there are too many.

    Examples:
        >>> rungs_of("auto", 200), rungs_of([25, 75], 200), rungs_of("auto", 2)
        ((22, 66, 200), (25, 75, 200), (2,))
    """
    if isinstance(rungs, str):
        return tuple(rung for power in reversed(range(AUTO)) if (rung := rounds // FACTOR**power) > 0)
    whole = (*rungs, rounds) if not rungs or rungs[-1] != rounds else tuple(rungs)
    if len(rungs) > _MOST:
        raise InvalidSpec("rungs", f"must be at most {_MOST}, got {len(rungs)}")
    rising = all(low < high for low, high in zip((0, *whole), whole, strict=False))
    if not rungs or not rising:
        rule = f"must be auto or a list of increasing {unit} from 1 to {unit}={shown(rounds)}"
        raise InvalidSpec("rungs", f"{rule}, got {shown(list(rungs))}")
    return whole


def scaled(rungs: Sequence[int], rounds: int, to_rounds: int, unit: str = "rounds") -> list[int]:
    """The rungs for trials with another number of rounds: at the same fractions, rounded up.

    Args:
        rungs: As in `rungs_of`.
        rounds: Rounds of the trials that `rungs` are for, or the amount of another unit.
        to_rounds: Rounds of the other trials.
        unit: The unit.

    Raises:
        InvalidSpec: Two rungs would come after the same round.

    Examples:
        >>> scaled([25, 75], 200, 1000), scaled([25, 75], 200, 10)
        ([125, 375], [2, 4])
    """
    moved = [-(-rung * to_rounds // rounds) for rung in rungs]
    if len(set(moved)) < len(moved) or (rungs[-1] < rounds and moved[-1] >= to_rounds):
        told = (
            f"must be enough for the rungs {shown(list(rungs))} of {rounds} {unit} to be apart, got rounds={to_rounds}"
        )
        raise InvalidSpec("rounds", told)
    return moved


def arriving_at(rungs: int, trials: int) -> list[int]:
    """About how many of these search trials train until each rung, because a third of them continues after each.

    Examples:
        >>> arriving_at(3, 16)
        [16, 6, 2]
    """
    arriving = [trials]
    while len(arriving) < rungs:
        arriving.append(-(-arriving[-1] // FACTOR))
    return arriving
