"""The entries of a study: methods, optimizers and schedules with their search spaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, JsonValue, PlainSerializer, PlainValidator, WithJsonSchema, model_validator
from pydantic import Field as Key

from driftline.errors import InvalidSpec
from driftline.study import starting_points as points
from driftline.study.sampler import OwnSamplerField
from driftline.study.trial_settings import MOST_ROUNDS, SIZES, EntrySettings
from driftline.study.validation import Errors, Section, Whole, from_spec_error
from search_spaces import parameters, presets, spaces
from search_spaces.constraints import Constraint
from search_spaces.parameters import Parameter, Space
from trainers import PLAIN, ROLES, SpecError, nearest, shown, step

MOST_CHOICES = 5_000
MOST_STARTS = 1_000
MOST_CONSTRAINTS = 20
PROGRAM = "program"
"""Name of the entries of a study with a user's own program; see `driftline.study.program`."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")


def _label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError(
            f"must be 1 to 50 letters, digits, '_' or '-', starting with a letter or digit, got {shown(value)}"
        )
    return value


def _space(value: Any) -> Space:
    if not isinstance(value, Mapping):
        raise InvalidSpec(
            "", f"must be a mapping of hyperparameters to their search spaces, or default, got {shown(value)}"
        )
    space: Space = {}
    errors = Errors()
    for name, form in value.items():
        with errors.collected():
            space[str(name)] = _parameter(form, str(name))
    errors.raise_any()
    return space


def _parameter(form: Any, name: str) -> Parameter:
    _short(form, name)
    try:
        return parameters.from_json(form, step(name))
    except SpecError as error:
        raise from_spec_error(error) from error


def _short(form: Any, name: str) -> None:
    """Refuses lists of choices so long that comparing them with one another would take minutes."""
    parts = form.items() if isinstance(form, Mapping) else ()
    for key, part in parts:
        if isinstance(part, list) and len(part) > MOST_CHOICES:
            raise InvalidSpec(f"{step(name)}.{step(key)}", f"must have at most {MOST_CHOICES} items, got {len(part)}")


def _named(values: Any) -> Any:
    """The mapping that a plain name stands for; other values unchanged."""
    return {"name": values} if isinstance(values, str) else values


def _resolve(values: dict[str, Any], kind: spaces.Kind) -> dict[str, Any]:
    """The values with "default" replaced by the default space of their name."""
    if values.get("space") != "default":
        return values
    if not isinstance(values.get("name"), str):
        return values | {"space": {}}  # only the invalid name is reported
    try:
        return values | {"space": spaces.default(kind, values["name"])}
    except SpecError as error:
        raise InvalidSpec("name", str(error)) from error


def _with(values: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values with further settings in their space."""
    space = values.get("space", {})
    if not settings or not isinstance(space, Mapping):
        return values  # the invalid space is reported later
    if twice := [key for key in settings if key in space]:
        raise InvalidSpec(twice[0], f"must not be given beside space.{twice[0]}, got both: leave one out")
    return values | {"space": {**space, **settings}}


def _preset(values: dict[str, Any]) -> dict[str, Any]:
    """The values with a preset written out; the other given keys override the preset's."""
    if "preset" not in values:
        return values
    if "name" in values:
        raise InvalidSpec(
            "preset", f"must not be given together with name, got preset {shown(values['preset'])} and name"
        )
    try:
        return presets.filled(values)
    except SpecError as error:
        raise InvalidSpec("preset", str(error)) from error


def _constraint(value: Any) -> Constraint:
    try:
        return value if isinstance(value, Constraint) else Constraint(value)
    except SpecError as error:
        raise from_spec_error(error) from error


ConstraintField = Annotated[
    Constraint,
    PlainValidator(_constraint),
    PlainSerializer(lambda constraint: constraint.text),
    WithJsonSchema({"type": "string", "description": "such as client_lr * local_steps <= 2"}),
]
SpaceField = Annotated[
    Space,
    PlainValidator(_space),
    PlainSerializer(lambda space: {name: parameter.to_json() for name, parameter in space.items()}),
    WithJsonSchema({"type": "object", "description": "hyperparameter -> its search space, or the string default"}),
]


def _from_theory(values: dict[str, Any]) -> dict[str, Any]:
    """The values with default spaces in place of the string "theory"; their key `theory` names these parts."""
    server = values.get("server")
    named = isinstance(server, dict) and server.get("space") == "theory"
    parts = [
        kind for kind, from_theory in (("method", values.get("space") == "theory"), ("server", named)) if from_theory
    ]
    if not parts:
        return values
    if "method" not in parts:
        raise InvalidSpec("server.space", "theory needs space: theory of the entry too")
    values = values | {"space": "default", "theory": {"parts": parts}}
    return values | ({"server": {**server, "space": "default"}} if isinstance(server, dict) and named else {})


class TheoryOrigin(Section):
    """That spaces of an entry are from theory; `driftline.study.theory_spaces` derives them before anything runs.

    Attributes:
        parts: Whose spaces: "method", "server".
        measured: The curvature and noise that they were derived from; None before that.
    """

    parts: list[Literal["method", "server"]]
    measured: dict[str, JsonValue] | None = None


class PartEntry(Section):
    """An optimizer or a schedule with its search space.

    Attributes:
        in_space: Settings that may stand beside name and space too; they are moved to the space.
        name: As in trainers/optimizers or trainers/schedules.
        space: Hyperparameter -> search space; omitted ones keep their defaults. "default" is the default space.
    """

    kind: ClassVar[spaces.Kind]
    in_space: ClassVar[tuple[str, ...]] = ()

    name: str
    space: SpaceField = Key(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _default_space(cls, values: Any) -> Any:
        values = _named(values)
        if not isinstance(values, dict):
            return values
        space_values = {key: value for key, value in values.items() if key in cls.in_space}
        values = {key: value for key, value in values.items() if key not in space_values}
        errors = Errors()
        for key in [key for key in values if key not in cls.model_fields]:
            near = nearest(step(key), (*cls.model_fields, *ClientOptimizerEntry.in_space))
            advice = "use name and space; settings belong under space"
            advice = f"did you mean {near}?" if near in cls.model_fields else advice
            errors.add(InvalidSpec(step(key), f"unknown key: {advice}"))
        errors.raise_any()
        return _with(_resolve(values, cls.kind), space_values)


class ClientOptimizerEntry(PartEntry):
    """The optimizer of the clients with its search space; `state: keep` may stand beside it."""

    kind = "client"
    in_space = ("state",)


class ServerOptimizerEntry(PartEntry):
    """A server optimizer with its search space."""

    kind = "server"


class CentralOptimizerEntry(PartEntry):
    """The optimizer of the server's branch with its search space."""

    kind = "central"


class MergeOptimizerEntry(PartEntry):
    """The optimizer of the merge with its search space."""

    kind = "merge"


class ScheduleEntry(PartEntry):
    """A schedule with its search space."""

    kind = "schedules"


class MethodEntry(EntrySettings):
    """A method with its optimizers, schedule and spaces, under a label.

    Attributes:
        label: Its name in results, unique in the study; the method's name by default.
        name: As in trainers/methods; or ``preset`` in its place, see `search_spaces.presets`.
        space: Hyperparameter -> search space; the method's default space by default. It may also have the sizes
            `clients_per_round` and `batch_size`.
        client: The clients' optimizer, for methods that take one; sgd by default.
        server: The server's optimizer; sgd without momentum by default.
        central: The optimizer of the server's branch, for methods with one; sgd by default.
        merge: The optimizer of the merge, for the same methods; sgd by default.
        schedule: The schedule of the rates; constant by default.
        constraints: What every configuration satisfies, see `search_spaces.constraints`; nothing by default.
        start: Configurations to try first, see `driftline.study.starting_points`; none by default.
        prior: Configurations near which good ones are believed to be; none by default.
        sampler: Proposes its configurations, in place of the study's.
        rounds: Server updates of its trials, in place of the budget's; rungs are at the same fractions of them.
        theory: Where the spaces come from if they were given as "theory"; never written by hand.

    Settings of `EntrySettings` that it has replace the study's for its trials.
    """

    label: Annotated[str, AfterValidator(_label)]
    name: str
    space: SpaceField
    client: ClientOptimizerEntry | None = None
    server: ServerOptimizerEntry = ServerOptimizerEntry(name=PLAIN)
    central: CentralOptimizerEntry | None = None
    merge: MergeOptimizerEntry | None = None
    schedule: ScheduleEntry = ScheduleEntry(name="constant")
    constraints: list[ConstraintField] = Key(default_factory=list, max_length=MOST_CONSTRAINTS)
    start: list[Any] = Key(default_factory=list, max_length=MOST_STARTS)
    prior: list[Any] = Key(default_factory=list, max_length=MOST_STARTS)
    sampler: OwnSamplerField = None
    rounds: Annotated[Whole, Key(ge=1, le=MOST_ROUNDS)] | None = None
    theory: TheoryOrigin | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        values = _named(values)
        if not isinstance(values, dict):
            return values
        preset = values.get("preset")
        values = _from_theory({"space": "default", **_preset(values)})
        name = values.get("name")
        values = {"label": name if isinstance(name, str) else "unnamed", **values}  # an invalid name is reported later
        resolved = _resolve(values, "methods")
        if preset is not None and values["space"] == "default":
            resolved["space"] = presets.method_space(preset, resolved["space"])
        return resolved

    @model_validator(mode="after")
    def _start_in_the_space(self) -> Self:
        space = self.parameters()
        errors = Errors()
        for name in self.sizes:
            if getattr(self, name) is not None:
                errors.add(InvalidSpec(name, f"must not be given beside space.{name}, got both: leave one out"))
        for index, constraint in enumerate(self.constraints):
            try:
                constraint.check(space)
            except SpecError as error:
                errors.add(from_spec_error(error, f"constraints[{index}]"))
        errors.raise_any()
        for key in ("start", "prior"):
            object.__setattr__(self, key, points.read(getattr(self, key), space, self.constraints, key))
        return self

    def parameters(self) -> Space:
        """All search spaces of the entry, by dotted name: client_lr, server.momentum, schedule.window."""
        parts = self.parts().items()
        return self.space | {f"{kind}.{name}": form for kind, part in parts for name, form in part.space.items()}

    @property
    def sizes(self) -> tuple[str, ...]:
        """The `SIZES` in its space, so that each configuration has its own."""
        return () if self.name == PROGRAM else tuple(name for name in SIZES if name in self.space)

    @property
    def branching(self) -> bool:
        """Whether it searches settings of its schedule."""
        return any(name.startswith("schedule.") for name in spaces.free(self.parameters()))

    def parts(self) -> dict[str, PartEntry]:
        """The optimizers that the entry names, by role, and the schedule."""
        if self.name == PROGRAM:
            return {}
        parts = {kind: getattr(self, kind) for kind in (*ROLES, "schedule")}
        return {kind: part for kind, part in parts.items() if part is not None}
