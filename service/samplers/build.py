"""Samplers by name, imported on demand: only tpe, nsga2 and gp need Optuna, only gp needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any, cast

from driftline.errors import InvalidSpec
from driftline.study import sampler as samplers
from search_spaces.constraints import Constraint
from search_spaces.parameters import Space
from service.samplers import finite_spaces, grid, quasi_random, staged
from service.samplers.allowed import Distinct, Filtered, Replaced, first_allowed, reserve
from service.samplers.given_points import Started
from service.samplers.informed import Informed
from service.samplers.optuna_base import Learner
from service.samplers.sampler import Hyperparameters, Sampler, SamplerModule

NAMES = samplers.NAMES


def build(
    sampler: str | Mapping[str, Any],
    space: Space,
    objectives: Sequence[str],
    seed: int,
    start: Sequence[Mapping[str, Any]] = (),
    constraints: Sequence[Constraint] = (),
    prior: Sequence[Mapping[str, Any]] = (),
    dimensions: Sequence[str] | None = None,
) -> Sampler:
    """A new sampler, before any results.

    Args:
        sampler: One of `NAMES`, or a mapping of the name and settings, as in `driftline.study.sampler`.
        space: Parameters by dotted name.
        objectives: Names of the values to maximise.
        seed: Seed of all random draws.
        start: Configurations inside the space that are tried first, as trials 0, 1, ... Missing values come
            from the random or grid sampler's own proposal for this trial; for all other samplers, from the quasi-random
            one, and in stages from the first values of the space. A grid then proposes every other configuration once.
        constraints: What every configuration satisfies.
        dimensions: Names in the order of the dimensions of quasi-random points; see `service.samplers.quasi_random`.
        prior: Configurations around which a sampler that learns draws some of its proposals.

    Raises:
        InvalidSpec: There is no sampler of this name, a setting is invalid, or the sampler cannot search this space.

    Examples:
        >>> from search_spaces.parameters import Choice
        >>> space = {"local_steps": Choice((1, 5))}
        >>> sampler = build("grid", space, ("quality", "speed"), seed=0, start=[{"local_steps": 5}])
        >>> sampler.ask(0), sampler.ask(1)
        ({'local_steps': 5}, {'local_steps': 1})
    """
    try:
        chosen = samplers.read(sampler)
    except InvalidSpec as error:
        raise error.moved(lambda path: f"sampler.{path}".rstrip(".")) from error
    name, settings = samplers.name_of(chosen), samplers.settings_of(chosen)
    spread = quasi_random.Sampler(space, objectives, seed, dimensions)
    built: Sampler = spread
    if name != "quasi_random":
        built = cast(SamplerModule, samplers.registry()[name]).Sampler(space, objectives, seed, **settings)
    if isinstance(built, Learner):
        built.begin_with(spread)
    points: list[Hyperparameters] = []
    if start:
        filler = built if name in ("grid", "random") else spread
        spare = reserve(filler, part=2)  # each is used once at most
        for number, point in enumerate(start):
            draws = built.grid() if isinstance(built, staged.Sampler) else chain([filler.ask(number)], spare)
            points.append(first_allowed((draw | dict(point) for draw in draws), constraints))
    if name == samplers.STAGED:
        built = staged.Sampler(space, objectives, seed, **settings, start=points, constraints=constraints)
    if name == "grid":
        built = grid.Sampler(space, objectives, seed, without=points) if points else built
    finite = not samplers.learns(chosen) and name != "grid" and isfinite(finite_spaces.count(space))
    if finite:
        built = Distinct(built, space, constraints, without=points)
    elif constraints and name != samplers.STAGED:
        built = _constrained(built, constraints, chosen, spread)
    if prior and samplers.takes_prior(chosen):
        built = Informed(built, space, seed, prior, constraints)
    return Started(built, points, ahead=len(points) if finite or name == "grid" else 0) if points else built


def _constrained(
    sampler: Sampler, constraints: Sequence[Constraint], chosen: samplers.Chosen, spare: Sampler
) -> Sampler:
    """The sampler, with proposals that break no constraint."""
    if isinstance(sampler, Learner):
        sampler.constrain(constraints)
        return sampler
    if samplers.learns(chosen):
        return Replaced(sampler, constraints, Filtered(spare, constraints))
    return Filtered(sampler, constraints, endless=samplers.name_of(chosen) != "grid")
