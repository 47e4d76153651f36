"""What a valid study will do and what it can claim, in sentences that `driftline validate` prints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import trainers
from driftline.study.chance import independent_draws, judged_effort, nothing_random
from driftline.study.entries import MethodEntry
from driftline.study.rung_rounds import FACTOR
from driftline.study.sampler import name_of
from driftline.study.spec import LEAST_PAIRS, Study
from driftline.study.theory_spaces import theory_facts
from driftline.study.trial_document import trial_document
from search_spaces.constraints import allowed_on_grid, allowed_share
from search_spaces.parameters import fixed
from trainers import ADVICE, cost_named, evaluation_grid, evaluation_work

SHARE = 0.15
"""Share of the time above which evaluations get a remark."""


def outlook(study: Study) -> list[str]:
    """One line for each fact about a valid study that is worth knowing before it runs.

    Args:
        study: The study, checked.
    """
    if study.program is not None:
        command = " ".join(study.program.command)
        return [f"Each trial is a run of: {command}", *_constraints(study), *_rungs(study), *_claims(study)]
    share = 100 * evaluation_share(study)
    evaluated = f"Each trial is evaluated {_rounds(study)}: about {share:.2g} % of the time."
    said = [*_constraints(study), *_rungs(study), *_branches(study), *_claims(study)]
    return [*theory_facts(study), evaluated, *said]


def evaluation_share(study: Study) -> float:
    """Share of a study's work that evaluations take, from counts; see `trainers.evaluation_work`.

    Every entry counts with two trials: one at the low end of every range, with the first of all choices, and one at the
    high end, with the last.
    """
    evaluation = training = 0.0
    for entry in study.methods:
        ends = {name: parameter.ends() for name, parameter in entry.parameters().items()}
        for configuration in ({name: values[side] for name, values in ends.items()} for side in (0, -1)):
            with suppress(trainers.SpecError):  # choices that exclude each other
                trial = trainers.parse(trial_document(study, entry.label, [configuration], study.seed))
                work = evaluation_work(trial)
                evaluation, training = evaluation + work[0], training + work[1]
    return evaluation / (evaluation + training) if evaluation else 0.0


def share_remark(study: Study) -> list[str]:
    """A remark if evaluations take more than `SHARE` of the time."""
    share = evaluation_share(study)
    if share <= SHARE:
        return []
    return [f"eval_every: evaluations take about {100 * share:.0f} % of the time: evaluate less often to save time"]


def sample_remark(study: Study, trial: trainers.TrialSpec) -> list[str]:
    """A remark if search trials are measured on a part of the held-out clients, so that their qualities are noisy.

    Args:
        study: The study.
        trial: One of its search trials.
    """
    held_out = len(trial.task.test or ())
    if trial.evaluation is None or trial.evaluation.clients == held_out:
        return []
    sample = f"{trial.evaluation.clients} of {held_out} held-out clients, drawn anew for each round"
    after = "confirmation measures all clients" if study.budget.seeds else "with seeds: 0 so are the results"
    return [f"evaluation: search trials are measured on {sample}, so their test metrics are noisy; {after}"]


def share_left(study: Study, entry: MethodEntry, point: Mapping[str, Any] | None = None) -> float:
    """Share of the configurations of an entry that its constraints leave: of its grid, or of random ones.

    Args:
        study: The study, for its sampler.
        entry: The entry.
        point: Values that are fixed.
    """
    space = entry.parameters() | {name: fixed(value) for name, value in (point or {}).items()}
    share = allowed_on_grid if name_of(study.sampler) == "grid" else allowed_share
    return share(space, entry.constraints)


def _constraints(study: Study) -> list[str]:
    """How much of the space of each entry its constraints leave."""
    shares = [(entry.label, share_left(study, entry)) for entry in study.methods if entry.constraints]
    return [f"Constraints of {label} leave about {100 * share:.2g} % of its space." for label, share in shares]


def _rungs(study: Study) -> list[str]:
    """Where search trials may stop early."""
    labels: dict[tuple[int, ...], list[str]] = {}
    for label, (*rungs, _) in study.rungs.items():
        labels.setdefault(tuple(rungs), []).append(label)
    places = [(" and ".join(map(str, rungs)), ", ".join(whose)) for rungs, whose in labels.items() if rungs]
    if not places:
        return []
    budgets = [study.budget_of(entry) for entry in study.methods]
    whole = sum(budget.trials_per_method * budget.rounds for budget in budgets)
    share = sum(budget.search_rounds for budget in budgets) / whole
    after = "; ".join(f"{rungs} ({whose})" if len(labels) > 1 else rungs for rungs, whose in places)
    compared = f"Search trials are compared after rounds {after}"
    if study.budget.rung_rule == "extrapolation":
        return [f"{compared}, and at most half continue."]
    trained = f"the search trains about {100 * share:.0f} % of all rounds"
    return [f"{compared}, and about one in {FACTOR} continues: {trained}."]


def _branches(study: Study) -> list[str]:
    """Which trials are trained together."""
    count = study.budget.branches
    labels = ", ".join(entry.label for entry in study.methods if entry.branching)
    tried = f"Each configuration of {labels} is tried with {count} settings of its schedule"
    return [f"{tried}, which are trained together until their rates part."] if count > 1 else []


def cost_remark(study: Study) -> list[str]:
    """A remark if the cost depends on the machine, so that `compare` gives no verdict."""
    if cost_named(study.objective.cost).repeatable:
        return []
    return [f"objective.cost: compare gives no verdict, because {study.objective.cost} {ADVICE}"]


def _claims(study: Study) -> list[str]:
    """What `compare` will be able to say with this budget and cost; nothing for a study with one label."""
    if len(study.methods) < 2 or cost_remark(study):
        return []
    seeds = study.budget.seeds
    if not seeds and not nothing_random(study):
        return ["Claims: with seeds: 0 the search trials are the result, and compare gives no verdict (budget.seeds)."]
    if nothing_random(study):
        saved = f"; seeds: 0 saves {study.budget.confirmation_trials} trials of each label" if seeds else ""
        basis = f"exactly, because nothing is random: one run stands for all seeds{saved}"
    elif seeds >= LEAST_PAIRS:
        basis = f"over {seeds} seeds"
    else:
        basis = f"with at least {LEAST_PAIRS} seeds, not with {seeds} (budget.seeds)"
    searches = study.budget.searches
    first = study.methods[0]
    given = [key for key in ("start", "prior") if any(getattr(e, key) != getattr(first, key) for e in study.methods)]
    if searches >= LEAST_PAIRS and given:
        methods = "It cannot judge the methods themselves where entries have different "
        methods += f"{' and '.join(given)}: all searches of an entry share them, and are not independent."
    elif searches >= LEAST_PAIRS and (trials := _judged(study)):
        methods = f"It can judge the methods themselves after {trials} trials, over {searches} independent searches."
    elif searches >= LEAST_PAIRS:
        methods = f"It can judge the methods themselves over {searches} independent searches."
    else:
        has = f"not {searches}" if searches > 1 else "not one"
        methods = f"It cannot judge the methods themselves: that needs {LEAST_PAIRS} independent searches, {has} "
        methods += "(budget.searches)."
    return [f"Claims: compare can judge the configurations found {basis}. {methods}"]


def _judged(study: Study) -> int:
    """The number of trials after which `compare` judges the methods; 0 if it pairs whole searches."""
    budget = study.budget
    if len(independent_draws(study)) < len(study.methods) or budget.confirmed < budget.trials_per_method:
        return 0
    return judged_effort(budget.trials_per_method, budget.searches)


def _rounds(study: Study) -> str:
    """The rounds after which trials are evaluated, in words."""
    grids: dict[str, list[str]] = {}
    for entry in study.methods:
        said = _evaluated(study.settings_of(entry).eval_every, study.budget_of(entry).rounds)
        grids.setdefault(said, []).append(entry.label)
    return "; ".join(said + (f" ({', '.join(labels)})" if len(grids) > 1 else "") for said, labels in grids.items())


def _evaluated(every: int | str | None, rounds: int) -> str:
    if isinstance(every, int):
        known = f"(costs are known to {every} rounds)"
        return f"every {every} rounds and after the last {known}" if every > 1 else "after every round"
    grid = sorted(evaluation_grid(rounds))
    coarse = [number for number, following in pairwise(grid) if following > number + 1]
    if not coarse:
        return "after every round"
    shown = ", ".join(map(str, grid[grid.index(coarse[0]) + 1 :][:3]))
    return f"{len(grid)} times, after every round to {coarse[0]}, then in steps of 5 % ({shown}, ...)"
