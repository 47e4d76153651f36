"""The costs of training, one row each: studies, results, tables, logs and the command line take them from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Cost:
    """A cost: the sum of counters on a trial's report lines, which count from the start of the trial.

    Args:
        counters: names of the counters.
        unit: of the sum; what follows a comma is for titles only.
        first: smallest cost at which speed is compared: one round, byte, gradient or example, a modelled microsecond, a
            millisecond. It is the same for all trials, so that of two trials with equal curves over rounds, the one
            with cheaper rounds is faster.
        whole: the cost is a count, so that amounts are whole numbers.
        reported: trials report it, so that a study may choose it; otherwise results compute it.
        repeatable: the same on every machine; comparisons by other costs get no verdicts.
        of_tokens: counted only for tasks that predict tokens.
    """

    counters: tuple[str, ...]
    unit: str
    first: float = 1.0
    whole: bool = True
    reported: bool = True
    repeatable: bool = True
    of_tokens: bool = False


COSTS: Mapping[str, Cost] = MappingProxyType(
    {
        "rounds": Cost(("round",), "rounds"),
        "bytes": Cost(("bytes_up", "bytes_down"), "bytes, up and down"),
        "client_gradients": Cost(("client_gradients",), "client gradients"),
        "examples": Cost(("examples",), "examples, of client gradients"),
        "tokens": Cost(("tokens",), "tokens, of client gradients", of_tokens=True),
        "time": Cost(("modelled_seconds",), "seconds, modelled", first=1e-6, whole=False, reported=False),
        "seconds": Cost(("wall_seconds",), "seconds", first=1e-3, whole=False, repeatable=False),
    }
)


def cost_named(name: str) -> Cost:
    """The cost of this name; a name outside the table is a counter that a user's own program reports.

    Examples:
        >>> cost_named("bytes").counters, cost_named("gpu_seconds").unit
        (('bytes_up', 'bytes_down'), 'gpu seconds')
    """
    return COSTS.get(name) or Cost((name,), name.replace("_", " "), whole=False)


REPORTED = tuple(name for name, cost in COSTS.items() if cost.reported)
"""Costs that a study may choose."""

_SAME = [name for name in REPORTED if COSTS[name].repeatable and not COSTS[name].of_tokens]
ADVICE = f"depend on the machine and its load: choose {', '.join(_SAME[:-1])} or {_SAME[-1]}"
"""Error text about a cost that is not repeatable, to follow its name."""

COUNTERS = (
    "exchanges",
    *(name for cost in REPORTED if cost != "rounds" for name in COSTS[cost].counters),
    "shared_gradients",
    "slowest_examples",
)
"""All counters on report lines: columns that grow from the start of a trial."""
