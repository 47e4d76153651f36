"""Hyperparameters: declared once as dataclass fields, from which all checks and descriptions follow.

    @dataclass(frozen=True)
    class Hyper:
        client_lr: Tensor = tunable(low=0, unit="model / gradient", limit="0 is large-batch SGD")
        local_steps: Tensor = tunable(kind="int", low=1)
        clip_norm: float | None = tunable(None, low=0, low_open=True, traced=False)

The kind follows from the annotation (float, int, bool, str, tuple[float, ...]; Tensor is float) unless it is given. A
default of None, or "| None" in the annotation, allows None.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from types import UnionType
from typing import Any

from trainers.errors import SpecError
from trainers.spelling import hint
from trainers.values import integer, last, number, shown, step

KINDS = ("float", "int", "bool", "floats", "ints", "str", "any")
_KEY = "hyper"
_WITHDRAWN = "withdrawn"


@dataclass(frozen=True, kw_only=True)
class Hyperparameter:
    """The description of one hyperparameter.

    Args:
        name: name in documents.
        kind: one of KINDS; "floats" and "ints" are non-empty lists of numbers in the range; "any" is not checked here.
        default: the default; MISSING if the hyperparameter is required.
        low: smallest value; None is unbounded.
        high: largest value; None is unbounded.
        low_open: low itself is not allowed.
        high_open: high itself is not allowed.
        unit: unit in words; "" is none.
        traced: may differ between the members of a pack; otherwise it is structural and separates packs.
        optional: None is allowed.
        none_is: number that replaces None if other members of a pack have a number; None refuses such packs.
        limit: the limit case, such as "0 is FedAvg".
        choices: the allowed values; empty allows any.
        longest: largest length of a list; None is unbounded.
        doc: description in one line.
    """

    name: str
    kind: str
    default: Any
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    unit: str = ""
    traced: bool = True
    optional: bool = False
    none_is: float | None = None
    limit: str = ""
    choices: tuple[Any, ...] = ()
    longest: int | None = None
    doc: str = ""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is MISSING

    def range_text(self) -> str:
        """The range for an error message: "at least 1", "above 0", "in [0, 1)".

        Examples:
            >>> Hyperparameter(name="momentum", kind="float", default=0, low=0, high=1, high_open=True).range_text()
            'in [0, 1)'
            >>> Hyperparameter(name="client_lr", kind="float", default=MISSING, low=0).range_text()
            'at least 0'
        """
        low, high = self.low, self.high
        if low is not None and high is not None:
            return f"in {'(' if self.low_open else '['}{shown(low)}, {shown(high)}{')' if self.high_open else ']'}"
        if low is not None:
            return f"{'above' if self.low_open else 'at least'} {shown(low)}"
        if high is not None:
            return f"{'below' if self.high_open else 'at most'} {shown(high)}"
        return "a number"

    def wanted(self) -> str:
        """The expected value, for an error message about a missing one.

        Examples:
            >>> Hyperparameter(name="gradient_weights", kind="floats", default=MISSING, low=0).wanted()
            'numbers at least 0'
        """
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        if self.kind in ("floats", "ints"):
            what = "numbers" if self.kind == "floats" else "whole numbers"
            return what if (self.low, self.high) == (None, None) else f"{what} {self.range_text()}"
        return {"bool": "true or false", "str": "a string"}.get(self.kind) or self.range_text()

    def check(self, value: Any, path: str) -> Any:
        """The checked value, converted to its type.

        Whole floats count as integers, and strings such as "1e-3" as numbers (YAML 1.1 reads them as strings). Booleans
        are not numbers, and no number may be infinite or NaN.

        Args:
            value: the value from a document.
            path: dotted path of the value, for the error.

        Returns:
            A float, int, bool, str or tuple of numbers, or None if that is allowed.

        Raises:
            SpecError: the value has the wrong type or is outside the range.
        """
        if value is None and self.optional:
            return None
        if self.kind == "any":
            return value
        if self.kind in ("floats", "ints"):
            return self._check_numbers(value, path)
        checked = self._of_kind(value, path)
        if self.choices and checked not in self.choices:
            names = [str(choice) for choice in self.choices]
            raise SpecError(f"{path} must be one of {', '.join(names)}, got {self.name}={shown(value)}", path)
        if self.kind in ("float", "int"):
            self._check_range(checked, path)
        return checked

    def _of_kind(self, value: Any, path: str) -> Any:
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise SpecError(f"{path} must be true or false, got {self.name}={shown(value)}", path)
            return value
        if self.kind == "str":
            if not isinstance(value, str):
                raise SpecError(f"{path} must be a string, got {self.name}={shown(value)}", path)
            return value
        return integer(value, path, math.inf) if self.kind == "int" else number(value, path)

    def _check_numbers(self, value: Any, path: str) -> tuple[float, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise SpecError(f"{path} must be a list of at least one number, got {self.name}={shown(value)}", path)
        if self.longest is not None and len(value) > self.longest:
            raise SpecError(f"{path} must have at most {self.longest} numbers, got {len(value)}", path)
        read = partial(integer, most=math.inf) if self.kind == "ints" else number
        numbers = tuple(read(item, f"{path}.{index}") for index, item in enumerate(value))
        for index, item in enumerate(numbers):
            self._check_range(item, f"{path}.{index}")
        return numbers

    def _check_range(self, value: float, path: str) -> None:
        too_low = self.low is not None and (value < self.low or (self.low_open and value == self.low))
        too_high = self.high is not None and (value > self.high or (self.high_open and value == self.high))
        if too_low or too_high:
            raise SpecError(f"{path} must be {self.range_text()}, got {last(path)}={shown(value)}", path)
        if self.kind in ("int", "ints"):
            integer(value, path)  # also refuses numbers above the largest whole number


def tunable(
    default: Any = MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    high_open: bool = False,
    unit: str = "",
    traced: bool = True,
    none_is: float | None = None,
    limit: str = "",
    choices: Sequence[Any] | None = None,
    longest: int | None = None,
    kind: str | None = None,
    doc: str = "",
) -> Any:
    """A dataclass field that is a hyperparameter; keyword-only, so that required fields may follow optional ones.

    Args:
        default: the default; without one the hyperparameter is required. A default of None allows None.
        low: smallest value.
        high: largest value.
        low_open: low itself is not allowed.
        high_open: high itself is not allowed.
        unit: unit in words.
        traced: may differ between the members of a pack.
        none_is: number that replaces None if other members of a pack have a number.
        limit: the limit case, such as "0 is FedAvg".
        choices: the allowed values.
        longest: largest length of a list.
        kind: one of KINDS; by default it follows from the annotation.
        doc: description in one line.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got kind={kind!r}")
    facts = {
        "kind": kind,
        "low": low,
        "high": high,
        "low_open": low_open,
        "high_open": high_open,
        "unit": unit,
        "traced": traced,
        "none_is": none_is,
        "limit": limit,
        "choices": tuple(choices or ()),
        "longest": longest,
        "doc": doc,
    }
    return dataclasses.field(default=default, kw_only=True, metadata={_KEY: facts})


def withdrawn(reason: str) -> Any:
    """A dataclass field that withdraws an inherited hyperparameter: it is None, and documents may not set it.

    Args:
        reason: why, such as "the adaptation steps are differentiated"; shown in errors and docs/methods.md.
    """
    return dataclasses.field(default=None, kw_only=True, metadata={_WITHDRAWN: reason})


@cache
def withdrawals(cls: type) -> Mapping[str, str]:
    """Name -> reason of the hyperparameters that a Hyper dataclass withdraws.

    Args:
        cls: a dataclass.
    """
    return {field.name: field.metadata[_WITHDRAWN] for field in fields(cls) if _WITHDRAWN in field.metadata}


@cache
def describe(cls: type) -> tuple[Hyperparameter, ...]:
    """The hyperparameters of a Hyper dataclass, in the order of their declaration; inherited ones come last.

    Fields that are not declared by `tunable` are left out, and so are withdrawn fields.

    Args:
        cls: a dataclass.

    Raises:
        TypeError: no kind follows from an annotation.
    """
    hints = typing.get_type_hints(cls)
    described = []
    written = [inspect.get_annotations(base) for base in cls.__mro__]
    positions = {name: (i, n) for i, names in reversed(list(enumerate(written))) for n, name in enumerate(names)}
    for field in sorted(fields(cls), key=lambda field: positions[field.name]):
        if _KEY not in field.metadata:
            continue
        facts = dict(field.metadata[_KEY])
        kind, optional = _kind(hints[field.name])
        facts["kind"] = facts["kind"] or kind
        if facts["kind"] is None:
            raise TypeError(f"{cls.__qualname__}.{field.name}: no kind follows from {hints[field.name]}, give kind=")
        described.append(
            Hyperparameter(name=field.name, default=field.default, optional=optional or field.default is None, **facts)
        )
    return tuple(described)


def check(cls: type, mapping: Mapping[str, Any], path: str, *, other_keys: Sequence[str] = ()) -> dict[str, Any]:
    """The checked values of all hyperparameters of a Hyper dataclass, with defaults filled in.

    Args:
        cls: a dataclass with fields declared by `tunable`.
        mapping: the given values by name.
        path: dotted path of the mapping in its document, such as "method".
        other_keys: further keys, which the caller handles; skipped here, but suggested for misspelt ones.

    Returns:
        name -> value, in the order of the fields.

    Raises:
        SpecError: an unknown key, a missing one, a wrong type, or a value outside its range.
    """
    return check_described(describe(cls), mapping, path, other_keys=other_keys)


def check_described(
    described: Sequence[Hyperparameter], mapping: Mapping[str, Any], path: str, *, other_keys: Sequence[str] = ()
) -> dict[str, Any]:
    """Does the work of `check` for hyperparameters that `describe` has returned."""
    names = [item.name for item in described]
    refuse_unknown(mapping, [*names, *other_keys], path)
    values: dict[str, Any] = {}
    for item in described:
        key_path = join(path, item.name)
        if item.name in mapping:
            values[item.name] = item.check(mapping[item.name], key_path)
        elif item.required:
            raise SpecError(f"{key_path} must be given ({item.wanted()})", key_path)
        else:
            values[item.name] = item.default
    return values


def refuse_unknown(mapping: Mapping[str, Any], keys: Sequence[str], path: str) -> None:
    """Raises a SpecError for the first unknown key, with the nearest known one.

    Args:
        mapping: a mapping from a document.
        keys: all valid keys.
        path: dotted path of the mapping; "" is the document itself.
    """
    for key in mapping:
        if key not in keys:
            key_path = join(path, key)
            where = f" in {path}" if path else ""
            raise SpecError(f"unknown key {shown(key)}{where}: {hint(key, keys)}", key_path)


def join(path: str, key: Any) -> str:
    """The dotted path of a key in the mapping at `path`; a long key is shortened."""
    return f"{path}.{step(key)}" if path else step(key)


def _kind(annotation: Any) -> tuple[str | None, bool]:
    """(kind, whether None is allowed), as follows from an annotation."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        kinds = {_kind(argument)[0] for argument in inner}
        return (kinds.pop() if len(kinds) == 1 else None), len(inner) < len(arguments)
    if typing.get_origin(annotation) in (tuple, list):
        return ({float: "floats", int: "ints"}.get(arguments[0]) if arguments else None), False
    plain = {float: "float", int: "int", bool: "bool", str: "str"}
    if annotation in plain:
        return plain[annotation], False
    return ("float" if getattr(annotation, "__name__", "") == "Tensor" else None), False
