"""Tuning in stages: which hyperparameters vary together, over which values, and which trials belong to a stage.

    sampler: {name: staged, stages: [[client_lr, local_steps], displacement]}

A stage tries all values of its hyperparameters on a grid, while the other hyperparameters keep the values of the best
configuration so far. This is at first the first point of `start`; hyperparameters that the point leaves out have the
first value of their space. After the last stage the first one comes again, so that the stages above are the three of
FedGA's paper: rates and steps, displacement, and once more rates and steps. A stage has one trial for each combination
of values, except for the best configuration so far, which has been tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from driftline.errors import InvalidSpec
from driftline.study.sampler import STAGED, name_of, settings_of
from search_spaces.parameters import Space
from search_spaces.spaces import free
from search_spaces.values import same
from trainers import shown

if TYPE_CHECKING:
    from driftline.study.entries import MethodEntry
    from driftline.study.spec import Study

_FIRST = ("client_lr", "delta_lr", "server_lr", "local_steps", "local_epochs")
"""The first stages by default, of one hyperparameter each; the others follow by name."""

Sizes = Sequence[int]
"""Trials of the first stage, then of the later stages, which repeat; empty if there is nothing to tune."""


def stage_names(space: Space, groups: Sequence[Sequence[str]] | None = None) -> list[list[str]]:
    """The names of each stage that have more than one value in a space.

    Args:
        space: Parameters by dotted name.
        groups: The sampler's setting `stages`, which may also name hyperparameters that the space does not have.

    Raises:
        InvalidSpec: A name with several values is in no stage.

    Examples:
        >>> from search_spaces.parameters import Choice
        >>> space = {name: Choice((1, 2)) for name in ("displacement", "local_steps", "client_lr")}
        >>> stage_names(space), stage_names(space, [["client_lr", "local_steps"], ["prox"], ["displacement"]])
        ([['client_lr'], ['local_steps'], ['displacement']], [['client_lr', 'local_steps'], ['displacement']])
    """
    tuned = free(space)
    if groups is None:
        first = [name for name in _FIRST if name in tuned]
        return [[name] for name in (*first, *(name for name in tuned if name not in _FIRST))]
    named = [[name for name in group if name in tuned] for group in groups]
    for name in tuned:
        if name not in itertools.chain(*named):
            raise InvalidSpec("sampler.stages", f"must name {name}, which has several values, got {shown(groups)}")
    return [group for group in named if group]


def grids(space: Space, start: Sequence[Mapping[str, Any]] = ()) -> dict[str, list[Any]]:
    """The values of each hyperparameter: those of its grid, then further ones in `start`.

    Examples:
        >>> from search_spaces.parameters import Float
        >>> grids({"prox": Float(0, 1, points=3)}, [{"prox": 0.1}])
        {'prox': [0.0, 0.5, 1.0, 0.1]}
    """
    values = {name: list(space[name].grid()) for name in sorted(space)}
    for name, value in itertools.chain(*(point.items() for point in start)):
        if not any(same(value, other) for other in values[name]):
            values[name].append(value)
    return values


def sizes(names: Sequence[Sequence[str]], values: Mapping[str, Sequence[Any]], start: int) -> list[int]:
    """The number of trials of each stage of a search.

    Args:
        names: From `stage_names`.
        values: From `grids`.
        start: Number of `start` points; several are a stage of their own, which comes first.

    Examples:
        >>> values = {"client_lr": [0.1, 0.2, 0.4], "local_steps": [1, 10]}
        >>> [sizes([["client_lr"], ["local_steps"]], values, start) for start in (0, 1, 5)]
        [[3, 1, 2], [3, 1, 2], [5, 2, 1]]
    """
    whole = [math.prod(len(values[name]) for name in group) for group in names]
    later = [size - 1 for size in whole]
    return [start, *later] if start > 1 else [*whole[:1], *later[1:], *later[:1]]


def stage_of(of_stages: Sizes, number: int) -> tuple[int, int, int]:
    """The stage of a trial, counted from 0; its first trial; and the first trial after it.

    Examples:
        >>> [stage_of([3, 1, 2], number) for number in (0, 2, 3, 4, 5, 6)]
        [(0, 0, 3), (0, 0, 3), (1, 3, 4), (2, 4, 6), (2, 4, 6), (3, 6, 7)]
    """
    if not of_stages:
        return 0, 0, number + 1
    first, *later = of_stages
    if number < first or not any(later):
        return 0, 0, max(first, number + 1)
    turns = (number - first) // sum(later)
    stage, end = turns * len(later), first + turns * sum(later)
    for size in later:
        stage, begin, end = stage + 1, end, end + size
        if number < end:
            break
    return stage, begin, end


def entry_sizes(study: Study, entry: MethodEntry) -> list[int]:
    """The number of trials of each stage of an entry, in one search; empty with another sampler."""
    sampler = study.sampler_of(entry)
    if name_of(sampler) != STAGED:
        return []
    space = entry.parameters()
    names = stage_names(space, settings_of(sampler).get("stages"))
    return sizes(names, grids(space, entry.start), len(entry.start))


def study_sizes(study: Study) -> dict[str, list[int]]:
    """Label -> trials of each stage of all its searches, which take turns; without labels of other samplers."""
    by_label = {entry.label: entry_sizes(study, entry) for entry in study.methods}
    return {label: [size * study.budget.searches for size in stages] for label, stages in by_label.items() if stages}
