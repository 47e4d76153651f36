"""The `start` of an entry: full or partial configurations that are tried before the sampler's.

    start: [{client_lr: 0.1, server_lr: 1.0, local_steps: 10}, {client_lr: 0, server.momentum: 0.9}]

Names are dotted for optimizers and the schedule. Every value must lie in its space, and no point may break a
constraint; the sampler fills in what a point leaves out. The points are among the entry's `trials_per_method`, so that
all labels have the same number of trials.

The `prior` of an entry has the same form: configurations near which good ones are believed to be. A sampler that learns
draws some of its proposals around them (`service.samplers.informed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.errors import InvalidSpec
from search_spaces.constraints import Constraint
from search_spaces.parameters import Choice, Float, Parameter, Space, is_fixed
from search_spaces.values import plain, same
from trainers import ROLES, hint, shown, step


def read(
    points: Sequence[Any], space: Space, constraints: Sequence[Constraint] = (), key: str = "start"
) -> list[dict[str, Any]]:
    """Checks the points, and converts each value to the type of its space.

    Args:
        points: Mappings of dotted names to values.
        space: Search spaces by dotted name.
        constraints: What points must satisfy, as far as their values and the fixed values of the space decide it.
        key: The key of the entry that holds them.

    Raises:
        InvalidSpec: A name or value outside the space, or a point that breaks a constraint; the path is like
            ``start[1].client_lr``.

    Examples:
        >>> read([{"client_lr": "1e-1"}], {"client_lr": Float(0.01, 1), "local_steps": Choice((1, 5))})
        [{'client_lr': 0.1}]
    """
    read = [_point(point, space, f"{key}[{index}]") for index, point in enumerate(points)]
    for index, point in enumerate(read):
        if broken := broken_by(point, space, constraints):
            values = ", ".join(f"{name}={shown(value)}" for name, value in point.items() if name in broken.names)
            raise InvalidSpec(f"{key}[{index}]", f"must satisfy {broken.text}, got {values}")
    return read


def broken_by(point: Mapping[str, Any], space: Space, constraints: Sequence[Constraint]) -> Constraint | None:
    """The first constraint that a point breaks, whatever is filled in; None if there is none."""
    fixed = {name: parameter.ends()[0] for name, parameter in space.items() if is_fixed(parameter)}
    values = {**fixed, **point}
    told = (constraint for constraint in constraints if values.keys() >= set(constraint.names))
    return next((constraint for constraint in told if not constraint.holds(values)), None)


def _point(point: Any, space: Space, path: str) -> dict[str, Any]:
    if not isinstance(point, Mapping) or not point:
        raise InvalidSpec(path, f"must be a mapping of hyperparameters to values, not empty, got {shown(point)}")
    for name, value in point.items():
        key_path = f"{path}.{step(name)}"
        if name in (*ROLES, "schedule") and isinstance(value, Mapping):
            raise InvalidSpec(key_path, f"write its settings with a dot: {name}.{step(next(iter(value), 'setting'))}")
        if name not in space:
            raise InvalidSpec(key_path, f"not in the entry's search space: {hint(name, space)}")
        if not space[name].contains(plain(value)):
            problem = f"must lie in its space {shown(space[name].to_json())}, got {shown(value)}: widen the space"
            raise InvalidSpec(key_path, problem)
    return {name: _typed(plain(point[name]), space[name]) for name in sorted(point)}


def _typed(value: Any, parameter: Parameter) -> Any:
    if isinstance(parameter, Choice):
        return next(option for option in parameter.options if same(option, value))
    return float(value) if isinstance(parameter, Float) else int(value)
