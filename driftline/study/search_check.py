"""Checks how entries are searched: their spaces, starting points, constraints, grids and samplers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import trainers
from driftline.errors import InvalidSpec
from driftline.study.entries import MOST_CHOICES, MethodEntry, PartEntry
from driftline.study.outlook import share_left
from driftline.study.sampler import STAGED, check_suits, learns, name_of, takes_prior
from driftline.study.spec import Study
from driftline.study.stages import entry_sizes
from driftline.study.trial_document import trial_document
from driftline.study.trial_settings import SIZES
from driftline.study.validation import Errors, from_spec_error
from search_spaces.parameters import Space
from search_spaces.spaces import check as check_space
from search_spaces.spaces import grid_size, preset_of
from search_spaces.values import same
from trainers import REGISTRIES, ROLES, SpecError, hint, offered, refuse_role, shown, step, withdrawals

MOST_POINTS = 100_000
"""Most points of a range on a grid."""

LARGEST_GRID = 1_000_000
"""Most configurations on a grid with constraints, all of which are checked."""

LEAST_SHARE = 0.01
"""Least share of a space that constraints must leave."""


def check_sizes(study: Study) -> None:
    """Refuses sizes that would take minutes, or all memory, just to check: they must be mistakes.

    Raises:
        InvalidSpec: Too many choices in all, or too many points on a grid.
    """
    choices = 0
    for index, entry in enumerate(study.methods):
        for name, parameter in entry.parameters().items():
            choices += len(parameter.ends())
            points = getattr(parameter, "points", None) or 0
            if points > MOST_POINTS:
                path = f"methods[{index}].space.{step(name)}.points"
                raise InvalidSpec(path, f"must be at most {MOST_POINTS}, got points={shown(points)}")
    if choices > MOST_CHOICES:
        raise InvalidSpec("methods", f"all spaces together must have at most {MOST_CHOICES} choices, got {choices}")


def check_spaces(entry: MethodEntry, path: str) -> None:
    """Checks that method, optimizers and schedule exist, and that their hyperparameters accept their spaces."""
    errors = Errors()
    named: dict[str, MethodEntry | PartEntry] = {"method": entry, **entry.parts()}
    for kind, part in named.items():
        registry, key_path = REGISTRIES[kind](), path if kind == "method" else f"{path}.{kind}"
        if part.name not in registry:
            text = f"no {registry.word} {shown(part.name)}: {preset_of(kind, part.name) or hint(part.name, registry)}"
            errors.add(InvalidSpec(f"{key_path}.name", text))
            if kind == "method":
                break  # its roles are unknown
            continue
        if kind in ROLES:
            try:
                refuse_role(kind, part.name, entry.name)
            except SpecError as error:
                errors.add(InvalidSpec(f"{key_path}.name", str(error)))
                continue
        hyperparameters = {item.name: item for item in offered(registry[part.name], kind)}
        if kind == "method":
            for name in set(entry.sizes) & set(hyperparameters):
                problem = f"means the trial's {name}, and {part.name} has a hyperparameter of this name: rename that"
                errors.add(InvalidSpec(f"{key_path}.space.{name}", problem))
            hyperparameters |= {name: trainers.trial_setting(name) for name in SIZES}
        for key, parameter in part.space.items():
            where = f"{key_path}.space.{step(key)}"
            try:
                if key in hyperparameters:
                    check_space(parameter, hyperparameters[key], key)
                elif (reason := withdrawals(registry[part.name].Hyper).get(key)) is not None:
                    errors.add(InvalidSpec(where, f"must be left out for {part.name}: {reason}"))
                else:
                    errors.add(
                        InvalidSpec(where, f"unknown hyperparameter of {part.name}: {hint(key, hyperparameters)}")
                    )
            except SpecError as error:
                errors.add(from_spec_error(error, where))
    errors.raise_any()


def corners(space: Space) -> Iterator[dict[str, Any]]:
    """Configurations at the corners of a space: all low, all high, and every end or choice with the rest low.

    Examples:
        >>> from search_spaces.parameters import Choice, Float
        >>> [tuple(configuration.values()) for configuration in corners({"a": Float(1, 2), "b": Choice((3, 4))})]
        [(1.0, 3), (2.0, 4), (2.0, 3), (1.0, 4)]
    """
    ends = {name: parameter.ends() for name, parameter in space.items()}
    low = {name: values[0] for name, values in ends.items()}
    yield low
    if any(len(values) > 1 for values in ends.values()):
        yield {name: values[min(1, len(values) - 1)] for name, values in ends.items()}
    for name, values in ends.items():
        for value in values[1:]:
            yield low | {name: value}


def check_start(study: Study, index: int) -> list[str]:
    """Checks the `start` configurations, filled up with low ends; returns warnings about repeated ones."""
    entry = study.methods[index]
    low = next(corners(entry.parameters()))
    for number, point in enumerate(entry.start):
        path = f"methods[{index}].start[{number}]"
        try:
            trainers.parse(trial_document(study, entry.label, [low | point], study.seed))
        except SpecError as error:
            key = re.sub(r"^(members\.\d+|method)(\.|$)", "", error.path)
            raise from_spec_error(error, f"{path}.{key}".rstrip(".")) from error
    return repeated(study, index)


def repeated(study: Study, index: int) -> list[str]:
    """Warnings about starting points that are there twice."""
    remarks = []
    first: dict[str, int] = {}
    for number, point in enumerate(study.methods[index].start):
        path = f"methods[{index}].start[{number}]"
        twin = first.setdefault(json.dumps(point, sort_keys=True), number)
        if twin != number:
            remarks.append(f"{path}: the same as start[{twin}]: one of them could be left out")
    return remarks


def check_constraints(study: Study, index: int) -> None:
    """Refuses constraints that leave next to nothing of a space, or of what a starting point leaves open.

    Raises:
        InvalidSpec: The constraints leave less than `LEAST_SHARE`, or a grid is too large to be checked.
    """
    entry, path = study.methods[index], f"methods[{index}]"
    if not entry.constraints:
        return
    if name_of(study.sampler_of(entry)) in ("grid", STAGED) and (size := grid_size(entry.parameters())) > LARGEST_GRID:
        raise InvalidSpec(f"{path}.space", f"must have at most {LARGEST_GRID} configurations on its grid, got {size}")
    points = [(f"{path}.constraints", None), *((f"{path}.start[{at}]", point) for at, point in enumerate(entry.start))]
    for key_path, point in points:
        share = share_left(study, entry, point)
        if share < LEAST_SHARE:
            left = "the space" if point is None else "what the point leaves open"
            about = f"about {100 * share:.2g} %" if share else "nothing"
            problem = f"must leave at least {100 * LEAST_SHARE:g} % of {left}, got {about}: allow more"
            raise InvalidSpec(key_path, problem)


def check_grid(study: Study, index: int) -> list[str]:
    """For samplers on a grid: refuses a budget beyond the grid, and returns a warning about what will not be tried."""
    entry, searches, trials = study.methods[index], study.budget.searches, study.budget.trials_per_search
    if name_of(study.sampler_of(entry)) not in ("grid", STAGED):
        return []
    space = entry.parameters()
    points = {name: parameter.grid() for name, parameter in space.items()}
    off = sum(any(not _among(value, points[name]) for name, value in point.items()) for point in entry.start)
    size = round(grid_size(space) * share_left(study, entry)) + off
    if trials > size:
        per_search = f", once for each of {searches} searches" if searches > 1 else ""
        raise InvalidSpec(
            "budget.trials_per_method",
            f"must be at most {size * searches}, the configurations on the grid of {entry.label}{per_search}, "
            f"got trials_per_method={study.budget.trials_per_method}: take fewer, or give methods[{index}].space more "
            "points or choices",
        )
    if trials < size and name_of(study.sampler_of(entry)) == "grid":
        by = " by each search" if searches > 1 else ""
        of = f"{trials} of the {size} configurations on the grid of {entry.label}"
        return [f"methods[{index}]: {of} will be tried{by}"]
    return []


def _among(value: Any, points: Iterable[Any]) -> bool:
    return any(same(value, point) for point in points)


def check_sampler(study: Study, index: int) -> list[str]:
    """Refuses an entry that the sampler cannot search, or a prior that it would not read; returns warnings."""
    entry, path = study.methods[index], f"methods[{index}]"
    sampler = study.sampler_of(entry)
    try:
        check_suits(name_of(sampler), entry.parameters(), study.objective.objectives)
    except InvalidSpec as error:
        raise error.moved(lambda key: key if key.startswith("objective") else f"{path}.{key}") from error
    if entry.prior and not takes_prior(sampler):
        why = "tries all values of a stage" if learns(sampler) else "learns nothing"
        problem = f"must be left out for sampler {name_of(sampler)}, which {why}"
        raise InvalidSpec(f"{path}.prior", problem)
    return _check_stages(study, entry, path) if name_of(sampler) == STAGED else []


def _check_stages(study: Study, entry: MethodEntry, path: str) -> list[str]:
    """Refuses an entry that cannot be tuned in stages; returns a warning if trials end before the last stage does."""
    if study.budget.asking != "generations":
        problem = "must be generations for sampler staged, which waits for all trials of a stage"
        raise InvalidSpec("budget.asking", f"{problem}, got {study.budget.asking}")
    if study.budget.branches > 1 and entry.branching:
        problem = f"must be 1 for sampler staged, whose stages {entry.label} shares with no trunk"
        raise InvalidSpec("budget.branches", f"{problem}, got {study.budget.branches}")
    try:
        sizes = entry_sizes(study, entry)
    except InvalidSpec as error:
        raise error.moved(lambda key: key if entry.sampler is None else f"{path}.{key}") from error
    needed = sum(sizes if len(entry.start) > 1 else sizes[:-1] or sizes)
    trials = study.budget.trials_per_search
    remark = f"{path}: the last stage needs {needed} trials of a search, and there are {trials}: give more"
    return [remark] if trials < needed else []
