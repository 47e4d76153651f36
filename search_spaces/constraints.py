"""Constraints between hyperparameters, such as ``client_lr * local_steps <= 2``.

A constraint is one comparison, ``<=`` or ``>=``, of two expressions: numbers, names of hyperparameters (dotted for
optimizers and the schedule, as ``server.momentum``), ``+``, ``-``, ``*``, ``/`` and brackets. Nothing else is
evaluated.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from search_spaces.parameters import Space
from search_spaces.values import is_real
from trainers import REPORTED, SpecError, hint, number, shown

LONGEST = 200
"""Most characters of a constraint."""

SLACK = 1e-9
"""Relative tolerance of a constraint, so that 3 steps at 0.1 satisfy ``<= 0.3`` despite rounding."""

DRAWS = 4096
"""Random configurations from which the allowed share of a space is estimated."""

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Constraint:
    """A comparison that every configuration must satisfy.

    Args:
        text: As in a study.

    Attributes:
        names: The compared hyperparameters, sorted.

    Raises:
        SpecError: The text is not such a comparison.
    """

    text: str
    names: tuple[str, ...] = field(init=False, compare=False)
    _sides: tuple[ast.expr, ast.expr] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        sides = _sides(self.text)
        object.__setattr__(self, "_sides", sides)
        names = sorted({name for side in sides for name in _names(side, self.text)})
        if not names:
            raise SpecError(f"must compare at least one hyperparameter, got {shown(self.text)}")
        object.__setattr__(self, "names", tuple(names))

    def holds(self, values: Mapping[str, ArrayLike]) -> NDArray[np.bool_]:
        """Whether values satisfy the constraint, up to a relative `SLACK`; False if a side is not finite, as in 1 / 0.

        Args:
            values: Numbers, or arrays of one shape, by name.

        Examples:
            >>> bool(Constraint("client_lr * local_steps <= 2").holds({"client_lr": 0.5, "local_steps": 5}))
            False
        """
        with np.errstate(all="ignore"):
            small, large = (np.asarray(_value(side, values)) for side in self._sides)
            kept = small <= large + SLACK * np.maximum(np.abs(small), np.abs(large))
        return np.asarray(kept & np.isfinite(small) & np.isfinite(large))

    def check(self, space: Space) -> None:
        """Raises a SpecError if a compared hyperparameter is not in the space, or has values that are not numbers."""
        for name in self.names:
            if name not in space:
                if name in REPORTED:
                    raise _of_cost(name)
                raise SpecError(f"{shown(name)} is not in the entry's search space: {hint(name, space)}")
            for value in space[name].ends():
                if not is_real(value):
                    raise SpecError(f"{name} must have numbers only, got {shown(value)} in its space")


def all_hold(constraints: Sequence[Constraint], values: Mapping[str, Any]) -> bool:
    """Whether a configuration satisfies all constraints."""
    return all(constraint.holds(values) for constraint in constraints)


def allowed_share(space: Space, constraints: Sequence[Constraint]) -> float:
    """Share of a space that satisfies all constraints, estimated from `DRAWS` random configurations."""
    generator = np.random.default_rng(0)
    drawn = {
        name: np.array([space[name].sample(generator) for _ in range(DRAWS)], dtype=float)
        for name in _compared(constraints)
    }
    return float(_allowed(constraints, drawn).mean()) if drawn else 1.0


def allowed_on_grid(space: Space, constraints: Sequence[Constraint]) -> float:
    """Share of the grid over a space that satisfies all constraints; exact."""
    names = _compared(constraints)
    points = np.meshgrid(*(np.array(space[name].grid(), dtype=float) for name in names))
    return float(_allowed(constraints, dict(zip(names, points, strict=True))).mean()) if names else 1.0


def _compared(constraints: Sequence[Constraint]) -> list[str]:
    """The hyperparameters that any of the constraints compares, sorted."""
    return sorted({name for constraint in constraints for name in constraint.names})


def _allowed(constraints: Sequence[Constraint], values: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Where all constraints hold."""
    allowed: NDArray[np.bool_] = np.logical_and.reduce([constraint.holds(values) for constraint in constraints])
    return allowed


def _sides(text: Any) -> tuple[ast.expr, ast.expr]:
    """The two sides of a comparison, first the side that must be smaller."""
    if not isinstance(text, str):
        raise SpecError(f"must be a string such as client_lr * local_steps <= 2, got {shown(text)}")
    if len(text) > LONGEST:
        raise SpecError(f"must have at most {LONGEST} characters, got {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _wrong(text) from error
    match tree:
        case ast.Compare(left=left, ops=[ast.LtE()], comparators=[right]):
            return left, right
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]):
            return right, left
    raise _wrong(text)


def _names(node: ast.expr, text: str) -> Iterator[str]:
    """Yields the hyperparameters in an expression; raises a SpecError if the expression contains anything invalid."""
    match node:
        case ast.Name() | ast.Attribute():
            yield _dotted(node, text)
        case ast.Constant(value=value) if not isinstance(value, str):
            try:
                number(value, "")
            except SpecError as error:
                raise _wrong(text) from error
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield from _names(operand, text)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            yield from _names(left, text)
            yield from _names(right, text)
        case _:
            raise _wrong(text)


def _value(node: ast.expr, values: Mapping[str, ArrayLike]) -> Any:
    """The value of an expression that `_names` has checked."""
    match node:
        case ast.Constant(value=value):
            return np.float64(number(value, ""))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left, values), _value(right, values))
    return np.asarray(values[_dotted(node)], dtype=float)


def _dotted(node: ast.expr, text: str = "") -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=part, attr=name):
            return f"{_dotted(part, text)}.{name}"
    raise _wrong(text)


def _wrong(text: str) -> SpecError:
    costs = [name for name in REPORTED if re.search(rf"(?<![\w.]){name}(?![\w.])", text)]
    if costs:
        return _of_cost(costs[0])  # as in bytes <= 1GB
    form = "must be one comparison (<= or >=) of numbers and hyperparameters with +, -, *, / and brackets"
    return SpecError(f"{form}, such as client_lr * local_steps <= 2, got {shown(text)}")


def _of_cost(name: str) -> SpecError:
    limits = "budget.rounds" if name in ("rounds", "bytes") else "budget.rounds and local_steps"
    instead = f"read the result within a limit (--cost {name})"
    if name != "seconds":
        instead = f"limit {limits}, or {instead}"
    return SpecError(f"must compare hyperparameters only, and {name} is a cost: {instead}")
