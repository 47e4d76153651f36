"""The plan of a study: generations, widths of packs and seeds, whatever the number of workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from driftline.study.budget import Budget
from driftline.study.sampler import Chosen, learns
from driftline.study.spec import Resources
from driftline.wire.records import StudyPlan

NARROWEST, WIDEST = 4, 16
"""Least and most configurations in a generation, and trials in a pack whose width the study leaves open."""

DIGITS = 4
"""Significant digits of the values that samplers are told, so that rounding in a trial seldom changes a proposal."""


def decided(budget: Budget, resources: Resources, sampler: Chosen, gpus: float = 0.0) -> StudyPlan:
    """The plan of a new study.

    In a generation, each search proposes an eighth of its configurations, but at least 4 and at most 16. Packs are as
    wide as `resources.packs` says, within a search's part of a generation. By default a search pack is the whole part
    on a GPU and half of it on CPU cores, where width saves little and many workers want packs; a search takes at least
    four packs, and confirmation two for each seed. Samplers that do not learn have no generations, unless trials of a
    generation are compared at rungs. With `budget.branches`, generations and packs hold whole trunks, and confirmation
    has one pack for each seed.

    Args:
        budget: The study's budget.
        resources: Its resources.
        sampler: Its sampler.
        gpus: GPUs of a pack, below 1 a share of one.

    Examples:
        >>> plan = decided(Budget(trials_per_method=64, rounds=200), Resources(), "tpe")
        >>> plan.generation, plan.width, plan.confirmation_width
        (8, 4, 4)
    """
    trunk = budget.branches
    eighth = _multiple(min(max(budget.trials_per_search // 8, NARROWEST), WIDEST), trunk)
    learned = budget.asking == "generations" and (learns(sampler) or budget.rungs is not None)
    generation = eighth * budget.searches if learned else 0
    if resources.packs == "auto":
        width = _multiple(min(eighth if gpus else eighth // 2, -(-budget.trials_per_search // 4)), trunk)
        confirmed = budget.confirmed_per_search if trunk > 1 else -(-budget.confirmed_per_search // 2)
        return StudyPlan(generation=generation, width=width, confirmation_width=min(max(confirmed, 1), WIDEST))
    packs = int(resources.packs)
    width = min(packs, eighth) if learned else packs
    return StudyPlan(generation=generation, width=width // trunk * trunk or width, confirmation_width=packs)


def halved(plan: StudyPlan, trials: int) -> StudyPlan:
    """The plan after a pack of this many trials ran out of memory: no pack is wider than half of it."""
    widest = max(1, trials // 2)
    narrower = {name: min(getattr(plan, name), widest) for name in ("width", "confirmation_width")}
    return plan.model_copy(update=narrower)


def sampler_seed(study_seed: int, search: int = 0) -> int:
    """Seed of the samplers of a search, below 2^32; the same for all labels, so that they share configurations.

    Args:
        study_seed: The study's seed.
        search: Number of the search, if labels are searched more than once.
    """
    return _hash([study_seed, "sampler", search], bits=32)


def independent_sampler_seed(study_seed: int, label: str, search: int = 0) -> int:
    """Seed of a sampler that shares nothing with those of other labels, for tables and replays of them."""
    return _hash([study_seed, label, search], bits=32)


def data_seed(study_seed: int, search: int = 0) -> int:
    """Seed of the cohorts, batches and initial models of a search, the same for all labels; confirmation counts on.

    Args:
        study_seed: The study's seed, which is that of the first search.
        search: Number of the search.
    """
    return study_seed if search == 0 else _hash([study_seed, search], bits=48)


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """The values of a trial as its sampler is told.

    Examples:
        >>> rounded({"quality": -0.123456, "speed": 1e-300})
        {'quality': -0.1235, 'speed': 1e-300}
    """
    return {name: float(f"{value:.{DIGITS}g}") for name, value in values.items()}


def _multiple(number: int, of: int) -> int:
    """The number, rounded up to a multiple."""
    return -(-number // of) * of


def _hash(parts: list[int | str], bits: int) -> int:
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[: bits // 8], "big")
