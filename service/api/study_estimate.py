"""What a study's budget says of its cost. A service trains nothing to estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.study.pack_families import families
from driftline.study.sampler import STAGED, leading, name_of
from driftline.study.spec import Study
from driftline.study.stages import study_sizes
from driftline.wire.budgets import StudyEstimate
from service.driver.search.actions import SearchPlan
from service.driver.search.policy import packs
from service.driver.search.study_plan import decided
from service.store.stored_spec import StoredSpec


def estimate(spec: Mapping[str, Any]) -> StudyEstimate:
    """Trials, packs and rounds of a study.

    Args:
        spec: A checked study in canonical form; not parsed again as a `Study`, because that is slow.
    """
    stored = StoredSpec(spec)
    methods, budget, resources = stored.methods, stored.budget, stored.resources
    gpus = 0.0 if resources.gpu == "auto" else float(resources.gpu)
    together = families(spec, budget)
    in_stages = STAGED in map(name_of, stored.samplers)
    stages = study_sizes(Study.from_json(dict(spec))) if in_stages else {}
    plan = decided(budget, resources, leading(stored.samplers), gpus, together, stages)
    budgets = {label: stored.budget_of(label) for label in methods}
    rungs = {label: label_budget.rung_amounts for label, label_budget in budgets.items()}
    rounds, counted = None, "trials"
    if budget.unit == "rounds":
        rounds, counted = sum(label_budget.rounds_of_trials for label_budget in budgets.values()), "trials and rounds"
    return StudyEstimate(
        trials=budget.trials * len(methods),
        packs=packs(SearchPlan.of(tuple(methods), budget, plan, rungs=rungs, families=together)),
        rounds=rounds,
        rests_on=[
            f"{counted}: the budget, if no trial diverges; packs: as few as the study's plan allows",
            "time: unknown; without a service, driftline validate measures it on your computer",
        ],
    )
