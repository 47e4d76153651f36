"""What is random in a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.study.sampler import name_of
from driftline.study.task_facts import model_of
from driftline.study.trial_settings import SIZES
from trainers import REGISTRIES
from trainers.registry import methods, models, tasks

if TYPE_CHECKING:
    from driftline.study.entries import MethodEntry, PartEntry
    from driftline.study.spec import Study

LEAST_SEARCHES = 12
"""Least number of disjoint searches of k trials for a verdict about searches of k trials."""


def nothing_random(study: Study) -> bool:
    """Whether all trials of a configuration are certain to be equal, whatever their seed.

    All clients take part with all their work and examples, gradients are exact, models start from the same parameters,
    and evaluations measure all held-out clients. False where the study's document alone cannot tell, as for plug-ins
    of installed packages.
    """
    if study.program is not None:
        return False
    task = study.task
    fixed = models().constant(model_of(task), "FIXED_START")
    sizes = [size for entry in study.methods for name in SIZES for size in study.sizes_of(entry, name)]
    whole = all(size is None for size in sizes)
    whole = whole and all(study.settings_of(entry).stragglers is None for entry in study.methods)
    whole = whole and study.evaluation is None and not task.get("gradient_noise")
    return bool(fixed and whole and tasks().built_in(task["name"]) and not any(map(_draws, study.methods)))


def independent_draws(study: Study) -> tuple[str, ...]:
    """Labels whose configurations are drawn independently of each other and of all results, for random searches.

    Points of a quasi-random sequence count: they differ more than independent ones. Starting points, rungs and branches
    make configurations depend on each other.
    """
    budget = study.budget
    if budget.rungs is not None or budget.branches > 1:
        return ()
    entries = (entry for entry in study.methods if name_of(study.sampler_of(entry)) in ("random", "quasi_random"))
    return tuple(entry.label for entry in entries if not entry.start)


def efforts(count: int, searches: int) -> list[int]:
    """Numbers of trials after which a label is reported: powers of 2 up to the size of a search, and that size.

    Examples:
        >>> efforts(144, 6)
        [1, 2, 4, 8, 16, 24]
    """
    size = count // searches
    return sorted({size, *(2**power for power in range(size.bit_length()))} - {0, count})


def judged_effort(count: int, searches: int) -> int:
    """The number of trials after which methods are compared: the largest with `LEAST_SEARCHES` disjoint searches, or 0.

    Examples:
        >>> judged_effort(144, 6), judged_effort(96, 6), judged_effort(8, 1)
        (8, 8, 0)
    """
    return max((k for k in efforts(count, searches) if LEAST_SEARCHES * k <= count), default=0)


def _draws(entry: MethodEntry) -> bool:
    """Whether an entry draws clients or the server's examples, or may draw something because it is no built-in one."""
    batches = entry.space.get("central_batch_size")
    drawn = batches is not None and any(size is not None for size in batches.ends())
    drawn = drawn or methods().constant(entry.name, "CLIENTS_PER_ROUND") is not None
    named: dict[str, MethodEntry | PartEntry] = {"method": entry, **entry.parts()}
    return drawn or not all(REGISTRIES[kind]().built_in(part.name) for kind, part in named.items())
