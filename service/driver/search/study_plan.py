"""The plan of a study: generations, widths of packs and seeds, whatever the number of workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from driftline.study.budget import Budget
from driftline.study.pack_families import Families
from driftline.study.sampler import Chosen, learns
from driftline.study.spec import Resources
from driftline.wire.records import StudyPlan

NARROWEST, WIDEST = 4, 16
"""Least and most configurations in a generation, and trials in a pack whose width the study leaves open."""

_WIDEST_ON_GPUS = 512  # without generations; on a GPU, a launch costs the same for a pack as for a trial
_PACKS = 8  # least packs of a phase whose packs are wide, so that workers are busy
_MANY_LABELS = 4  # two generations of each are under way, which are again 8 packs
_SORTED = 64  # trials that such a sampler proposes at once, to be sorted by their work

DIGITS = 4
"""Significant digits of the values that samplers are told, so that rounding in a trial seldom changes a proposal."""


def decided(
    budget: Budget,
    resources: Resources,
    sampler: Chosen,
    gpus: float = 0.0,
    families: Families = (("",),),
    stages: dict[str, list[int]] | None = None,
) -> StudyPlan:
    """The plan of a new study.

    In a generation, each search proposes an eighth of its configurations, but at least 4 and at most 16. Samplers that
    do not learn have no generations, unless trials of a generation are compared at rungs; they propose some packs at
    once. Trials that are proposed at once are sorted by their work before they are packed (`policy`).

    Packs are as wide as `resources.packs` says, within a search's part of a generation. By default they are wide,
    because a trial costs less in a wider pack (benchmarks/widths.py), as long as a few workers find packs: a search
    pack is the whole part on a GPU or with four labels or more, else half of it but at least 4; without generations it
    has up to 16 trials, on a GPU up to 512, but a search takes at least 8 packs over all labels, and each label 2.
    Confirmation takes a pack for each seed, or two if there is one seed. If few trials have the same seed, packs of
    several seeds, where the engine can join them, hold at least twice as many, up to 16, as long as confirmation takes
    at least 8 packs over all labels. With `budget.branches`, generations and packs hold whole trunks.

    Labels that share packs count as one label with all their trials, half of whose generation is a pack, up to 16.

    Args:
        budget: The study's budget.
        resources: Its resources.
        sampler: Its sampler.
        gpus: GPUs of a pack, below 1 a share of one.
        families: Its labels, from `driftline.study.pack_families`.
        stages: Sizes of the generations of labels tuned in stages (`driftline.study.stages`).

    Examples:
        >>> plan = decided(Budget(trials_per_method=64, rounds=200), Resources(), "tpe")
        >>> plan.generation, plan.width, plan.confirmation_width
        (8, 4, 8)
        >>> plan = decided(Budget(trials_per_method=48, rounds=100, searches=6, confirm=6, seeds=6), Resources(), "tpe")
        >>> plan.confirmation_width, plan.seeds_together
        (4, True)
        >>> decided(Budget(trials_per_method=512, rounds=200), Resources(), "random").width
        16
    """
    trunk, trials = budget.branches, budget.trials_per_search
    labels, together = sum(map(len, families)), max(map(len, families))
    seeds_together = False
    eighth = _multiple(min(max(trials // 8, NARROWEST), WIDEST), trunk)
    waits = budget.asking == "generations"
    learned = waits and (learns(sampler) or budget.rungs is not None)
    generation = eighth * budget.searches if learned else 0
    if resources.packs == "auto":
        if learned or not waits:
            part = eighth if gpus or labels >= _MANY_LABELS else max(eighth // 2, NARROWEST)
            part = max(part, min(eighth * together // (1 if gpus else 2), WIDEST))
            width = _multiple(min(part, -(-trials * together // 4)), trunk)
        else:
            widest = _WIDEST_ON_GPUS if gpus else WIDEST
            width = _multiple(min(widest, -(-trials * labels // _PACKS), -(-trials * together // 2)), trunk)
        whole = trunk > 1 or budget.seeds > 1
        confirmed = budget.confirmed_per_search * together
        confirmed = confirmed if whole else -(-confirmed // 2)
        confirmation_width = min(max(confirmed, 1), WIDEST)
        pooled = min(labels * budget.confirmation_trials // _PACKS, WIDEST)
        if trunk == 1 and pooled >= 2 * confirmation_width:
            seeds_together, confirmation_width = True, pooled
    else:
        packs = int(resources.packs)
        width = min(packs, eighth * together) if learned else packs
        width, confirmation_width = width // trunk * trunk or width, packs
    return StudyPlan(
        generation=generation,
        width=width,
        confirmation_width=confirmation_width,
        seeds_together=seeds_together,
        stages=stages or {},
    )


def proposed_at_once(budget: Budget, plan: StudyPlan) -> int:
    """Configurations of a label that samplers which do not learn propose at once; 0 if they learn.

    Args:
        budget: The study's budget.
        plan: Its plan.
    """
    if plan.generation or budget.asking != "generations":
        return 0
    return max(_SORTED // plan.width, 1) * plan.width * budget.searches


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
