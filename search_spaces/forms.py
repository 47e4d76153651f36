"""How a hyperparameter's space is written in a study.

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

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.parameters import Choice, Float, Int, Parameter, fixed
from trainers import SpecError, integer, join, refuse_unknown, shown

_OPTIONS = {"float": ("log", "also", "complement", "points"), "int": ("log", "also", "points"), "choice": ()}


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
    rest: dict[str, Any] = {name: form[name] for name in _OPTIONS[kind] if name in form}
    for flag in ("log", "complement"):
        if not isinstance(rest.get(flag, False), bool):
            raise SpecError(f"must be true or false, got {flag}={shown(rest[flag])}", join(path, flag))
    try:
        if "also" in rest:
            rest["also"] = tuple(_values(rest["also"], "also"))
        if "points" in rest:
            rest["points"] = integer(rest["points"], "points")
        if kind == "choice":
            return Choice(tuple(values))
        if len(values) != 2:
            raise SpecError(f"{kind} must be a list of low and high, got {kind}={shown(values)}")
        return Float(*values, **rest) if kind == "float" else Int(*values, **rest)
    except SpecError as error:
        raise SpecError(str(error), path) from error


def _values(value: Any, path: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError(f"must be a list, got {shown(value)}", path)
    return list(value)
