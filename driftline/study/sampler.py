"""The `sampler` of a study or of an entry: a name, or a mapping of the name and the sampler's settings.

    sampler: tpe
    sampler: {name: tpe, startup: 20}             # quasi-random configurations before TPE begins
    sampler: {name: nsga2, population_size: 24}   # trials in a generation
    sampler: {name: gp, cap: 100}                 # most finished trials on which the processes are fitted
    sampler: {name: cmaes, population_size: 8}    # trials of an update; one objective, continuous spaces
    sampler: {name: staged, stages: [[client_lr, local_steps], displacement]}  # `driftline.study.stages`; one objective

Omitted settings keep the sampler's defaults; a mapping without settings is the same as the plain name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Annotated, Any, Protocol, Self

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema, model_validator
from pydantic import Field as Key

from driftline.errors import InvalidSpec
from driftline.study.validation import Section, Whole, from_spec_error
from search_spaces.parameters import Choice, Space, is_fixed
from search_spaces.values import is_real
from trainers import Hyperparameter, Registry, SpecError, hint, shown, step

MOST = 1_000_000
"""The largest number in a sampler's settings: the most trials that an entry may have."""


STAGED = "staged"
"""The sampler that tunes in stages; see `driftline.study.stages`."""


class _Plain(Section):
    """A sampler without settings."""

    name: str


class _Tpe(_Plain):
    startup: Whole | None = Key(default=None, ge=1, le=MOST)


class _Nsga2(_Plain):
    population_size: Whole | None = Key(default=None, ge=4, le=MOST)


class _Cmaes(_Plain):
    population_size: Whole | None = Key(default=None, ge=4, le=MOST)


class _Gp(_Plain):
    cap: Whole | None = Key(default=None, ge=16, le=MOST)


def _groups(value: Any) -> Any:
    """A list of lists of names, in which a name alone may stand for a list of one."""
    return [[group] if isinstance(group, str) else group for group in value] if isinstance(value, list) else value


class _Staged(_Plain):
    stages: Annotated[list[Annotated[list[str], Key(min_length=1)]], BeforeValidator(_groups)] | None = Key(
        default=None, min_length=1
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        names = list(chain(*(self.stages or ())))
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                problem = (
                    f"must name {name} once, got it {names.count(name)} times: the stages come again by themselves"
                )
                raise InvalidSpec("stages", problem)
        return self


_SECTIONS: dict[str, type[_Plain]] = {
    "tpe": _Tpe,
    "random": _Plain,
    "grid": _Plain,
    "quasi_random": _Plain,
    "nsga2": _Nsga2,
    "gp": _Gp,
    "cmaes": _Cmaes,
    STAGED: _Staged,
}
NAMES = tuple(_SECTIONS)
_LEARNERS = ("tpe", "nsga2", "gp", "cmaes", STAGED)


class _Settable(Protocol):
    """The part of `service.samplers.sampler.SamplerModule` that this module reads."""

    SETTINGS: tuple[Hyperparameter, ...]
    LEARNS: bool


@cache
def registry() -> Registry[_Settable]:
    """Every sampler, by name; modules are imported on demand."""
    return Registry("service.samplers", "service.samplers.sampler.SamplerModule", "sampler", names=NAMES)


Chosen = str | dict[str, Any]
"""A sampler's name; or, with settings, ``{"name": ..., setting: value}``."""


def read(value: Any) -> Chosen:
    """Checks the sampler of a study and returns its canonical form.

    Args:
        value: A name, or a mapping of the name and settings.

    Raises:
        InvalidSpec: No sampler of this name, or an invalid setting; the path begins below ``sampler``.

    Examples:
        >>> read("tpe"), read({"name": "tpe"}), read({"name": "tpe", "startup": "20"})
        ('tpe', 'tpe', {'name': 'tpe', 'startup': 20})
    """
    if isinstance(value, str):
        _known(value, "")
        return value
    if not isinstance(value, Mapping):
        problem = f"must be the name of a sampler, or a mapping of its name and settings, got {shown(value)}"
        raise InvalidSpec("", problem)
    if "name" not in value:
        raise InvalidSpec("name", f"must be given: one of {', '.join(NAMES)}")
    _known(value["name"], "name")
    if value["name"] not in NAMES:
        settings = _added(value["name"], {key: item for key, item in value.items() if key != "name"})
        return {"name": value["name"], **settings} if settings else value["name"]
    section = _SECTIONS[value["name"]].from_json(dict(value))
    settings = section.model_dump(exclude_none=True)
    return settings if len(settings) > 1 else section.name


def name_of(chosen: Chosen) -> str:
    """The name of a sampler from `read`."""
    return chosen if isinstance(chosen, str) else str(chosen["name"])


def settings_of(chosen: Chosen) -> dict[str, Any]:
    """The settings of a sampler from `read`."""
    return {} if isinstance(chosen, str) else {key: value for key, value in chosen.items() if key != "name"}


def learns(chosen: Chosen) -> bool:
    """Whether the proposals of a sampler from `read` depend on results."""
    name = name_of(chosen)
    return name in _LEARNERS if name in NAMES else registry()[name].LEARNS


def takes_prior(chosen: Chosen) -> bool:
    """Whether a sampler from `read` draws some of its proposals around a prior."""
    return learns(chosen) and name_of(chosen) != STAGED


def leading(samplers: Iterable[Chosen]) -> Chosen:
    """The sampler of a study's entries that decides its plan: the first that learns, otherwise the first."""
    return min(samplers, key=lambda chosen: not learns(chosen))


def check_suits(name: str, space: Space, objectives: Sequence[str]) -> None:
    """Refuses a study that a sampler cannot search: cmaes and staged need one objective, cmaes a continuous space.

    Args:
        name: Name of the sampler.
        space: Parameters by dotted name.
        objectives: Names of the values to maximise.

    Raises:
        InvalidSpec: The sampler cannot; the path is a key of the study, or begins below ``space``.
    """
    if name in ("cmaes", STAGED) and len(objectives) > 1:
        problem = f"must be quality or speed for sampler {name}, which has one objective, got both"
        raise InvalidSpec("objective.optimize", problem)
    if name != "cmaes":
        return
    free = {key: parameter for key, parameter in space.items() if not is_fixed(parameter)}
    if len(free) == 1:
        raise InvalidSpec(
            "space", f"must have at least 2 hyperparameters to tune for sampler cmaes, got {next(iter(free))}"
        )
    for key, parameter in free.items():
        if isinstance(parameter, Choice):
            if not all(map(is_real, parameter.options)):
                raise InvalidSpec(f"space.{step(key)}", "must be numbers for sampler cmaes: take tpe")
        elif parameter.also:
            raise InvalidSpec(
                f"space.{step(key)}.also", "must be left out for sampler cmaes: take tpe, or leave it out"
            )


def _known(name: Any, path: str) -> None:
    if name in NAMES:  # the registry, which other packages' samplers need, imports service.samplers
        return
    if not isinstance(name, str) or name not in registry():
        suggestion = hint(name, registry()) if isinstance(name, str) else f"known are {', '.join(registry())}"
        raise InvalidSpec(path, f"no sampler {shown(name)}: {suggestion}")


def _added(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Checks the settings of a sampler from another package."""
    described = {item.name: item for item in registry()[name].SETTINGS}
    for key in settings:
        if key not in described:
            raise InvalidSpec(key, f"unknown setting of the sampler {name}: {hint(key, described)}")
    try:
        checked = {key: described[key].check(item, key) for key, item in settings.items()}
    except SpecError as error:
        raise from_spec_error(error) from error
    return {key: item for key, item in checked.items() if item is not None}


_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": list(NAMES)},
        {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string", "enum": list(NAMES)},
                "startup": {"type": "integer", "minimum": 1, "maximum": MOST, "description": "tpe"},
                "population_size": {"type": "integer", "minimum": 4, "maximum": MOST, "description": "nsga2, cmaes"},
                "stages": {"type": "array", "items": {"type": ["string", "array"]}, "description": "staged"},
                "cap": {"type": "integer", "minimum": 16, "maximum": MOST, "description": "gp"},
            },
        },
    ]
}
SamplerField = Annotated[Chosen, PlainValidator(read), WithJsonSchema(_SCHEMA)]
OwnSamplerField = Annotated[
    Chosen | None,
    PlainValidator(lambda value: None if value is None else read(value)),
    WithJsonSchema({"anyOf": [*_SCHEMA["anyOf"], {"type": "null"}]}),
]
