"""Starting points and a prior of a study from the result of an earlier one.

The configurations that the earlier study recommends are tried first (`start`); all that it confirmed, or the Pareto set
of a study that confirmed none, become the `prior` of a sampler that learns.

An entry takes configurations from the earlier entries of the same method with the same optimizers; if one of these has
its label, from this one alone. Settings of another schedule are left out. A value outside the entry's space becomes the
nearest one of the space, or is left to the sampler if it has no nearest one. Configurations that break a constraint are
left out.

Rates of gradient descent are in units of 1 / curvature. Between tasks they are multiplied by the ratio of the tasks'
curvatures (`driftline.study.theory_spaces.curvature_ratio`), for the methods of which `search_spaces.from_theory` has
rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.errors import InvalidSpec
from driftline.study.entries import MethodEntry
from driftline.study.sampler import takes_prior
from driftline.study.spec import Study
from driftline.study.starting_points import broken_by
from search_spaces.from_theory import closed_form, pseudo_gradient
from search_spaces.parameters import Choice, Float, Parameter
from search_spaces.values import is_real, plain
from trainers import PLAIN, ROLES

MOST, MOST_PRIOR = 8, 16
"""Most configurations that an entry takes as starting points, and as its prior."""

Configurations = Mapping[str, Sequence[Mapping[str, Any]]]


def warm_started(
    study: Study, earlier: Study, recommended: Configurations, good: Configurations | None = None, factor: float = 1.0
) -> Study:
    """The study, which tries the recommended configurations after its own starting points.

    Args:
        study: The study.
        earlier: The study that the configurations are from.
        recommended: Configurations by label of the earlier study, most important ones first.
        good: Configurations that were good, by label, for the prior of entries that have none.
        factor: The factor by which their rates are multiplied.

    Raises:
        InvalidSpec: No entry of the study can take a configuration.
    """
    document = study.to_json()
    taken = 0
    for entry, form in zip(study.methods, document["methods"], strict=True):
        start = list(entry.start)
        room = min(MOST, study.budget.trials_per_search - len(start))
        for point in _points(entry, earlier, recommended, factor):
            if room > 0 and point not in start:
                start.append(point)
                room, taken = room - 1, taken + 1
        if start:
            form["start"] = start
        if good and not entry.prior and takes_prior(study.sampler_of(entry)):
            prior: list[dict[str, Any]] = []
            for point in _points(entry, earlier, good, factor):
                if point not in prior and len(prior) < MOST_PRIOR:
                    prior.append(point)
            form |= {"prior": prior} if prior else {}
    if not taken:
        problem = f"{earlier.name} recommends nothing for a method of {study.name} with the same optimizers"
        raise InvalidSpec("warm_start", f"{problem}, or there is no room for it: leave it out")
    return Study.from_json(document)


def _points(entry: MethodEntry, earlier: Study, recommended: Configurations, factor: float) -> list[dict[str, Any]]:
    """The points that an entry can take, most important ones first."""
    space = entry.parameters()
    sources = [source for source in earlier.methods if _algorithm(source) == _algorithm(entry)]
    sources = [source for source in sources if source.label == entry.label] or sources
    points = []
    for source in sources:
        names = [
            name for name in space if not name.startswith("schedule.") or source.schedule.name == entry.schedule.name
        ]
        for configuration in recommended.get(source.label, ()):
            taken = configuration if factor == 1 else _carried(configuration, entry, factor)
            values = {name: _moved(taken[name], space[name]) for name in names if name in taken}
            point = {name: value[0] for name, value in sorted(values.items()) if value}
            if point and broken_by(point, space, entry.constraints) is None:
                points.append(point)
    return points


def _carried(configuration: Mapping[str, Any], entry: MethodEntry, factor: float) -> dict[str, Any]:
    """The configuration with its rates of gradient descent multiplied by a factor, to three digits."""
    method, client, server, *_ = _algorithm(entry)
    rates = []
    if pseudo_gradient(method) and closed_form(client):
        rates = ["client_lr", "server_lr"] if closed_form(server) else ["client_lr"]
    moved = {rate: float(f"{factor * configuration[rate]:.3g}") for rate in rates if rate in configuration}
    return {**configuration, **moved}


def _algorithm(entry: MethodEntry) -> tuple[str, ...]:
    """Names of the method and its optimizers; an optimizer that is not named is sgd."""
    parts = entry.parts()
    return (entry.name, *(parts[role].name if role in parts else PLAIN for role in ROLES))


def _moved(value: Any, parameter: Parameter) -> tuple[Any, ...]:
    """The value itself if it is in a space, otherwise the nearest one as a tuple; empty if there is none.

    The nearest value of a range is never one of its extra points. Options are compared by their ratio to the value if
    all are positive.
    """
    value = plain(value)
    if parameter.contains(value):
        return (value,)
    if not is_real(value):
        return ()
    if isinstance(parameter, Choice):
        options = [option for option in parameter.options if is_real(option)]
        ratios = value > 0 and all(option > 0 for option in options)
        by = (lambda option: abs(math.log(option / value))) if ratios else (lambda option: abs(option - value))
        return (min(options, key=by),) if options else ()
    clipped = min(max(value, parameter.low), parameter.high)
    return (clipped if isinstance(parameter, Float) else round(clipped),)
