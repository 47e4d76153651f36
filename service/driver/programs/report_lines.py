"""The report lines of a program: JSON objects, one a line, each checked before it counts."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from trainers import hint, shown

LONGEST = 1 << 20
"""Most bytes of a report line."""

LARGEST = 2**53
"""Largest round and whole number of a report."""

ROUND, SECONDS, DIVERGED = "round", "wall_seconds", "diverged"


class ProgramError(Exception):
    """What a program did wrong, in one line; its trial cannot go on.

    Args:
        text: The line.
        final: Whether another attempt would end in the same way.

    Attributes:
        final: Whether another attempt would end in the same way.
    """

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


class LineError(ProgramError):
    """An invalid report line. It is final, because the program would report it again in every attempt."""

    def __init__(self, text: str) -> None:
        super().__init__(text, final=True)


class ReportLines:
    """Turns a program's lines into those of a pack.

    Args:
        metrics: Metrics that the program may report.
        costs: Costs that the program may report.
        quality: The metric of the study's objective; a trial in which it is not finite has diverged.
        first: Round from which the program continues; 0 at the beginning, when it may also report round 0.
        last: Last round that it may report.
        before: Costs after round `first`.

    Attributes:
        last: Last round that it may report.
        round: The last reported round; `first` before that.
        costs: Costs after the last reported round.
        diverged: Whether the trial has diverged.
        begun: Whether a line has been read.
    """

    def __init__(
        self,
        metrics: Collection[str],
        costs: Collection[str],
        quality: str,
        *,
        first: int = 0,
        last: int,
        before: Mapping[str, float] | None = None,
    ) -> None:
        self._metrics = metrics
        self._names = (ROUND, DIVERGED, *metrics, *costs)
        self._quality = quality
        self.last = last
        self._least = first + 1 if first else 0
        self.round = first
        self.costs: dict[str, int | float] = {name: (before or {}).get(name, 0) for name in costs}
        self.diverged = False
        self.begun = False

    def read(self, text: bytes) -> dict[str, Any]:
        """The line as a pack's report line.

        Args:
            text: One line, without its end.

        Raises:
            LineError: The line is not a valid report line.
        """
        line = self._parsed(text)
        for name in line:
            if name not in self._names:
                suggestion = hint(name, self._names)
                raise LineError(f"reported {shown(name)}, which program.metrics and costs do not have: {suggestion}")
        number = line.get(ROUND)
        if isinstance(number, float) and number.is_integer():  # some languages write 3 as 3.0
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST:
            raise LineError(f"reported a line whose round must be a whole number from 0, got {shown(number)}")
        told = line.get(DIVERGED, False)
        if told not in (True, False, None):  # 1 and 0 too, as `driftline.trial` writes numbers
            raise LineError(f"reported diverged={shown(told)}, must be true or false")
        if number < self._least or (self.begun and number <= self.round):
            raise LineError(f"reported round {number} after round {self.round}: rounds must increase")
        if number > self.last:
            raise LineError(f"reported round {number}, must end or wait with round {self.last}")
        values = {name: self._value(name, value) for name, value in line.items() if name not in (ROUND, DIVERGED)}
        counted = {name: self._counted(name, values.pop(name, None)) for name in self.costs}
        quality = values.get(self._quality)
        diverged = bool(told) or (quality is not None and not math.isfinite(quality))
        self.round, self.costs, self.diverged, self.begun = number, counted, diverged, True
        measured = {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
        return {ROUND: number, **measured, **stored_costs(counted), DIVERGED: diverged}

    def _parsed(self, text: bytes) -> dict[str, Any]:
        if len(text) > LONGEST:
            raise LineError(f"reported a line of more than {LONGEST} bytes")
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            came = shown(text.decode(errors="replace"))
            raise LineError(f'reported a line that must be JSON like {{"round": 3, "loss": 0.4}}, got {came}')
        return line

    def _value(self, name: str, value: Any) -> int | float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LineError(f"reported {name}={shown(value)}, must be a number or null")
        return value if isinstance(value, float) or abs(value) <= LARGEST else float(min(max(value, -1e300), 1e300))

    def _counted(self, name: str, value: int | float | None) -> int | float:
        before = self.costs[name]
        if value is None:  # left out: as in the line before
            return before
        if not math.isfinite(value):
            raise LineError(f"reported {name}={shown(value)}, a cost must be finite")
        if value < before:
            raise LineError(f"reported {name}={shown(value)} after {shown(before)}: a cost must not fall")
        return value


def stored_costs(counted: Mapping[str, int | float]) -> dict[str, int | float]:
    """Costs as trials store them: `bytes`, which counts both directions, is stored as bytes up.

    Examples:
        >>> stored_costs({"bytes": 8, "tokens": 3})
        {'bytes_up': 8, 'bytes_down': 0, 'tokens': 3}
    """
    stored: dict[str, int | float] = {}
    for name, value in counted.items():
        stored |= {"bytes_up": value, "bytes_down": 0} if name == "bytes" else {name: value}
    return stored
