"""The search space of one hyperparameter: `Float`, `Int` or `Choice`, and how it is written in a study.

| written                                                        | means |
|----------------------------------------------------------------|-------|
| ``{float: [0.1, 0.9]}``                                        | uniform on [0.1, 0.9] |
| ``{float: [1e-3, 10], log: true}``                             | log-uniform; both ends above 0 |
| ``{float: [1e-3, 10], log: true, also: [0]}``                  | the same, or 0 |
| ``{float: [0, 0.99], log: true, complement: true}``            | 1 - x is log-uniform on [0.01, 1] |
| ``{float: [1e-3, 10], log: true, points: 9}``                  | the same; a grid has 9 points (5 by default) |
| ``{int: [5, 50]}``, ``{int: [1, 64], log: true}``              | whole numbers from 5 to 50, from 1 to 64 |
| ``{choice: [1, 5, 10, 50]}``                                   | one of these; any JSON values, lists too |
| ``0.1``, ``reference``, ``true``, ``null``                     | fixed (a `Choice` of one) |

The extra points under ``also`` must lie outside the range. Together they have probability 1/8, shared equally. Numbers
may be strings (``"1e-3"``), as YAML 1.1 loaders read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from search_spaces.values import identity, is_json, is_real, plain, rounded, same
from trainers import SpecError, integer, join, number, refuse_unknown, shown

ALSO_PROBABILITY = 1 / 8
"""Probability that a random or quasi-random draw takes one of the extra points, when there are any."""

GRID_POINTS = 5
"""Points of a range on a grid, by default."""

_LEAST_WIDTH = 1e-12  # of a range, relative to its larger end; fractions of the range are then exact to three digits
_MOST_DECADES = 300  # of a range on a log scale: the ratio of its ends is then a finite double

_OPTIONS = {"float": ("log", "also", "complement", "points"), "int": ("log", "also", "points"), "choice": ()}
"""The kinds of ranges and choices, with their options."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Float:
    """A real number in [low, high], or one of a few extra points.

    Args:
        low: Smallest value.
        high: Largest value, above low.
        log: Drawn uniformly in log x (in log(1 - x) with `complement`).
        also: Extra points outside [low, high], such as 0 on a log scale.
        complement: 1 - x is drawn on a log scale; needs log, 0 <= low and high < 1.
        points: Points of the range on a grid, extra points not counted.

    Raises:
        SpecError: An argument breaks these rules. (SpecError is a ValueError from `trainers`.)
    """

    low: float
    high: float
    log: bool = False
    also: Sequence[float] = ()
    complement: bool = False
    points: int = GRID_POINTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", number(self.low, "low"))
        object.__setattr__(self, "high", number(self.high, "high"))
        object.__setattr__(self, "also", tuple(number(value, "also") for value in self.also))
        _check_range("float", self.low, self.high, self.also, self.points)
        if self.complement and not self.log:
            raise SpecError("complement means that 1 - x is on a log scale: add log: true")
        if self.complement and not (self.low >= 0 and self.high < 1):
            raise SpecError(f"complement needs 0 <= low and high < 1, got float={shown([self.low, self.high])}")
        if self.log and not self.complement and self.low <= 0:
            raise SpecError(
                f"a log scale needs low above 0, got float={shown([self.low, self.high])}: to try 0 too, add also: [0]"
            )
        _check_width("float", self.low, self.high, self._on_scale(self.low), self._on_scale(self.high), self.log)

    def contains(self, value: Any) -> bool:
        """Whether the value is in the range or an extra point (booleans and strings are not)."""
        return is_real(value) and bool(self.low <= value <= self.high or value in self.also)

    def from_unit(self, u: float) -> float:
        """The value at quantile u: extra points first, then the range from low to high (high to low for `complement`).

        Args:
            u: In [0, 1).

        Examples:
            >>> Float(0.01, 100, log=True).from_unit(0.5)
            1.0
            >>> Float(0.01, 100, log=True, also=(0,)).from_unit(0.1)
            0.0
        """
        extra, u = _split(u, self.also)
        return self.at(u) if extra is None else extra

    def at(self, u: float) -> float:
        """The value at fraction u in [0, 1] of the range, on its scale, without extra points."""
        if self.complement:
            top, bottom = 1 - self.low, 1 - self.high
            value = 1 - bottom * (top / bottom) ** (1 - u)
        elif self.log:
            value = self.low * (self.high / self.low) ** u
        else:
            value = self.low + (self.high - self.low) * u
        return float(min(max(value, self.low), self.high))

    def place(self, value: float) -> float:
        """The fraction of the range, on its scale, at which a value inside it lies; the inverse of `at`.

        Examples:
            >>> Float(1, 4, log=True).place(2)
            0.5
        """
        low, high = self._on_scale(self.low), self._on_scale(self.high)
        return (self._on_scale(value) - low) / (high - low)

    def grid(self, points: int | None = None) -> tuple[float, ...]:
        """Extra points, then evenly spaced ones on the parameter's scale, both ends included (1 point: the middle).

        Args:
            points: Number of points of the range; `self.points` by default.

        Examples:
            >>> Float(1e-3, 10, log=True, also=(0,)).grid()
            (0.0, 0.001, 0.01, 0.1, 1.0, 10.0)
        """
        count = self.points if points is None else points
        shares = [0.5] if count == 1 else [index / (count - 1) for index in range(count)]
        inner = [self.low if u == 0 else self.high if u == 1 else rounded(self.at(u)) for u in shares]
        return (*self.also, *dict.fromkeys(min(max(value, self.low), self.high) for value in inner))

    def ends(self) -> tuple[float, ...]:
        """Low, high, and the extra points: the values that are checked before anything runs."""
        return (self.low, self.high, *self.also)

    def to_json(self) -> dict[str, Any]:
        """The parameter as a study writes it."""
        form = _range_json("float", self.low, self.high, self.log, self.also, self.points)
        return form | ({"complement": True} if self.complement else {})

    def sample(self, generator: np.random.Generator) -> float:
        """A random value."""
        return self.from_unit(float(generator.random()))

    def _on_scale(self, value: float) -> float:
        return math.log(1 - value) if self.complement else math.log(value) if self.log else value


@dataclass(frozen=True)
class Int:
    """A whole number from low to high, both included, or one of a few extra points.

    Args:
        low: Smallest value; at least 1 with log.
        high: Largest value, above low.
        log: Drawn uniformly in log x.
        also: Extra points outside [low, high].
        points: Most points of the range on a grid.

    Raises:
        SpecError: An argument breaks these rules. (SpecError is a ValueError from `trainers`.)
    """

    low: int
    high: int
    log: bool = False
    also: Sequence[int] = ()
    points: int = GRID_POINTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", integer(self.low, "low"))
        object.__setattr__(self, "high", integer(self.high, "high"))
        object.__setattr__(self, "also", tuple(integer(value, "also") for value in self.also))
        _check_range("int", self.low, self.high, self.also, self.points)
        if self.log and self.low < 1:
            raise SpecError(
                f"a log scale needs low at least 1, got int={shown([self.low, self.high])}: to try 0 too, add also: [0]"
            )
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (float(self.low), float(self.high))
        _check_width("int", self.low, self.high, low, high, self.log)

    def contains(self, value: Any) -> bool:
        """Whether the value is a whole number in the range, or an extra point (booleans and strings are not)."""
        return is_real(value) and value == math.floor(value) and (self.low <= value <= self.high or value in self.also)

    def from_unit(self, u: float) -> int:
        """The value at quantile u: extra points first, then the range from low to high.

        Args:
            u: In [0, 1).

        Examples:
            >>> [Int(5, 8).from_unit(u) for u in (0, 0.25, 0.5, 0.99)]
            [5, 6, 7, 8]
        """
        extra, u = _split(u, self.also)
        if extra is not None:
            return extra
        if self.log:
            value = round((self.low - 0.5) * ((self.high + 0.5) / (self.low - 0.5)) ** u)
        else:
            value = self.low + math.floor(u * (self.high - self.low + 1))
        return int(min(max(value, self.low), self.high))

    def at(self, u: float) -> int:
        """The whole number nearest to fraction u in [0, 1] of the range, on its scale, without extra points."""
        return round(Float(self.low, self.high, log=self.log).at(u))

    def place(self, value: float) -> float:
        """The fraction of the range, on its scale, at which a value inside it lies."""
        return Float(self.low, self.high, log=self.log).place(value)

    def grid(self, points: int | None = None) -> tuple[int, ...]:
        """Extra points, then evenly spaced ones on the parameter's scale, both ends included, none twice.

        Args:
            points: Most points of the range; `self.points` by default.

        Examples:
            >>> Int(1, 64, log=True).grid(7), Int(1, 3).grid()
            ((1, 2, 4, 8, 16, 32, 64), (1, 2, 3))
        """
        count = min(self.points if points is None else points, self.high - self.low + 1)
        inner = Float(self.low, self.high, log=self.log).grid(count)
        return (*self.also, *dict.fromkeys(round(value) for value in inner))

    def ends(self) -> tuple[int, ...]:
        """Low, high, and the extra points: the values that are checked before anything runs."""
        return (self.low, self.high, *self.also)

    def to_json(self) -> dict[str, Any]:
        """The parameter as a study writes it."""
        return _range_json("int", self.low, self.high, self.log, self.also, self.points)

    def sample(self, generator: np.random.Generator) -> int:
        """A random value."""
        return self.from_unit(float(generator.random()))


@dataclass(frozen=True)
class Choice:
    """One of a few values, all equally likely; a single value is fixed.

    Args:
        options: Distinct JSON values (1 and 1.0 are the same, 1 and true are not).

    Raises:
        SpecError: No option, a duplicate, or a value that JSON cannot hold. (SpecError is a ValueError.)
    """

    options: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(plain(option) for option in self.options))
        if not self.options:
            raise SpecError("choice must hold at least one value, got choice=[]")
        seen = set()
        for option in self.options:
            if not is_json(option):
                raise SpecError(f"choice must hold finite JSON values only, got {shown(option)}")
            if identity(option) in seen:
                raise SpecError(f"choice must hold no value twice, got {shown(option)} twice")
            seen.add(identity(option))

    def contains(self, value: Any) -> bool:
        """Whether the value is one of the options."""
        return any(same(option, value) for option in self.options)

    def from_unit(self, u: float) -> Any:
        """The option at quantile u in [0, 1)."""
        return self.options[min(math.floor(u * len(self.options)), len(self.options) - 1)]

    def grid(self, points: int | None = None) -> tuple[Any, ...]:
        """All options, whatever `points` is."""
        del points
        return tuple(self.options)

    def ends(self) -> tuple[Any, ...]:
        """All options."""
        return tuple(self.options)

    def to_json(self) -> Any:
        """The parameter as a study writes it: the bare value if it is fixed."""
        if len(self.options) == 1 and not isinstance(self.options[0], list | dict):
            return self.options[0]
        return {"choice": list(self.options)}

    def sample(self, generator: np.random.Generator) -> Any:
        """A random option."""
        return self.from_unit(float(generator.random()))


Parameter = Float | Int | Choice
Space = dict[str, Parameter]


def fixed(value: Any) -> Choice:
    """A parameter that is always this value."""
    return Choice((value,))


def is_fixed(parameter: Parameter) -> bool:
    """Whether the parameter has only one value."""
    return isinstance(parameter, Choice) and len(parameter.options) == 1


def from_json(form: Any, path: str = "") -> Parameter:
    """Converts a study's form to a parameter; a parameter is returned unchanged.

    Args:
        form: As in the table of this module.
        path: Dotted place of the form, for errors.

    Raises:
        SpecError: The form is not in the table; the error has `path`.

    Examples:
        >>> from_json({"float": ["1e-3", 10], "log": True, "also": [0]})
        Float(low=0.001, high=10.0, log=True, also=(0.0,), complement=False, points=5)
        >>> from_json("1e-3")
        Choice(options=(0.001,))
    """
    if isinstance(form, Float | Int | Choice):
        return form
    if not isinstance(form, Mapping):
        if isinstance(form, Sequence) and not isinstance(form, str):
            raise SpecError(f"write {{choice: {shown(list(form))}}} for one of several values, or a single one", path)
        return fixed(form)
    named = [kind for kind in _OPTIONS if kind in form]
    if len(named) != 1:
        refuse_unknown(form, [*_OPTIONS, *_OPTIONS["float"]], path)
        raise SpecError(f"must be a value, {{float: [low, high]}}, {{int: [low, high]}} or {{choice: [...]}}, "
                        f"got {shown(dict(form))}", path)  # fmt: skip
    kind = named[0]
    refuse_unknown(form, [kind, *_OPTIONS[kind]], path)
    values = _values(form[kind], join(path, kind))
    options: dict[str, Any] = {name: form[name] for name in _OPTIONS[kind] if name in form}
    for flag in ("log", "complement"):
        if not isinstance(options.get(flag, False), bool):
            raise SpecError(f"must be true or false, got {flag}={shown(options[flag])}", join(path, flag))
    try:
        if "also" in options:
            options["also"] = tuple(_values(options["also"], "also"))
        if "points" in options:
            options["points"] = integer(options["points"], "points")
        if kind == "choice":
            return Choice(tuple(values))
        if len(values) != 2:
            raise SpecError(f"{kind} must be a list of low and high, got {kind}={shown(values)}")
        return Float(*values, **options) if kind == "float" else Int(*values, **options)
    except SpecError as error:
        raise SpecError(str(error), path) from error


def _check_range(kind: str, low: float, high: float, also: Sequence[float], points: int) -> None:
    if not low < high:
        raise SpecError(f"low must be below high, got {kind}={shown([low, high])}: for a fixed value write it alone")
    if inside := [value for value in also if low <= value <= high]:
        raise SpecError(f"also must lie outside [{shown(low)}, {shown(high)}], got also={shown(inside)}")
    if len(set(also)) < len(also):
        raise SpecError(f"also must hold no value twice, got also={shown(list(also))}")
    if points < 1:
        raise SpecError(f"points must be at least 1, got points={points}")


def _check_width(kind: str, low: float, high: float, first: float, last: float, log: bool) -> None:
    """Refuses a range too narrow for doubles to tell its fractions apart, or too wide for a double.

    Args:
        kind: float or int.
        low: smallest value.
        high: largest value.
        first: `low` on the range's scale.
        last: `high` on the range's scale.
        log: whether that scale is logarithmic.
    """
    size = max(abs(first), abs(last), 1.0 if log else 0.0)
    if abs(last - first) < _LEAST_WIDTH * size:
        raise SpecError(
            f"low and high must differ by more than rounding, got {kind}={shown([low, high])}: "
            "for a fixed value write it alone"
        )
    if log and last - first > _MOST_DECADES * math.log(10):
        raise SpecError(
            f"low and high must be at most {_MOST_DECADES} powers of ten apart, got {kind}={shown([low, high])}"
        )
    if not math.isfinite(last - first):
        raise SpecError(f"high - low must be finite, got {kind}={shown([low, high])}")


def _range_json(kind: str, low: float, high: float, log: bool, also: Sequence[float], points: int) -> dict[str, Any]:
    form: dict[str, Any] = {kind: [low, high]}
    if log:
        form["log"] = True
    if also:
        form["also"] = list(also)
    if points != GRID_POINTS:
        form["points"] = points
    return form


def _split(u: float, also: Sequence[Number]) -> tuple[Number | None, float]:
    """The extra point at quantile u, or None and the quantile within the range."""
    if not also:
        return None, u
    if u < ALSO_PROBABILITY:
        return also[min(math.floor(u / ALSO_PROBABILITY * len(also)), len(also) - 1)], 0.0
    return None, (u - ALSO_PROBABILITY) / (1 - ALSO_PROBABILITY)


def _values(value: Any, path: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError(f"must be a list, got {shown(value)}", path)
    return list(value)
