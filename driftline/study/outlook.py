"""What a valid study will do and what it can claim, in sentences that `driftline validate` prints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import trainers
from driftline.errors import InvalidSpec
from driftline.study.budget import LEAST_PAIRS, unit_text
from driftline.study.chance import independent_draws, judged_effort, nothing_random
from driftline.study.entries import MethodEntry
from driftline.study.rung_rounds import FACTOR
from driftline.study.sampler import STAGED, name_of, settings_of
from driftline.study.spec import Study
from driftline.study.stages import entry_sizes, stage_names, stage_of
from driftline.study.theory_spaces import theory_facts
from driftline.study.trial_document import trial_document
from driftline.study.trial_rounds import rounds_range, usual_budget
from search_spaces.constraints import allowed_on_grid, allowed_share
from search_spaces.parameters import fixed
from trainers import ADVICE, cost_named, evaluation_grid, evaluation_work, is_of_test, validating

SHARE = 0.15
"""Share of the time above which evaluations get a remark."""

LEAST_POINTS = 30
"""Evaluations of a trial, beside that of the initial model, below which a budget of spend gets a remark."""


def outlook(study: Study, *, data: bool = True) -> list[str]:
    """One line for each fact about a valid study that is worth knowing before it runs.

    Args:
        study: The study, checked.
        data: False reads no data, and leaves out what follows from them.
    """
    if study.program is not None:
        command = " ".join(study.program.command)
        return [
            f"Each trial is a run of: {command}",
            *_constraints(study),
            *_stages(study),
            *_rungs(study),
            *_claims(study),
        ]
    if not data:
        rungs = _rungs(study) if study.budget.unit == "rounds" else []
        return [*_constraints(study), *_stages(study), *rungs, *_branches(study), *_claims(study)]
    share = 100 * evaluation_share(study)
    evaluated = f"Each trial is evaluated {_rounds(study)}: about {share:.2g} % of the time."
    lines = [*_constraints(study), *_stages(study), *_rungs(study), *_branches(study), *_claims(study)]
    return [*theory_facts(study), *_spent(study), evaluated, *lines]


def _spent(study: Study) -> list[str]:
    """How many rounds trials have within a budget of spend."""
    if study.budget.unit == "rounds":
        return []
    ends = [(entry.label, *rounds_range(study, entry)) for entry in study.methods]
    words = [f"{label} {low:,}" if low == high else f"{label} {low:,} to {high:,}" for label, low, high in ends]
    return [f"Rounds within {study.budget.trial_text}: {', '.join(words)}."]


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


def choice_remark(study: Study, trial: trainers.TrialSpec) -> list[str]:
    """A remark if a study has examples for validation and chooses by test examples.

    Args:
        study: The study.
        trial: One of its search trials.
    """
    quality = study.objective.quality
    if study.task.get("validation") is None or not is_of_test(quality):
        return []
    metric = validating(quality)
    advice = f"{metric} would choose" if metric in trial.metrics else "examples for validation have no such metric"
    return [f"objective.quality: {quality} chooses by what is to report: {advice}"]


def few_points(study: Study, entry: MethodEntry) -> list[str]:
    """A remark if some of an entry's trials are evaluated fewer than `LEAST_POINTS` times within a budget of spend.

    Raises:
        InvalidSpec: The budget has no room for some configurations, or a rung comes before their first evaluation.
    """
    unit = study.budget.unit
    if unit == "rounds":
        return []
    fewest, most = rounds_range(study, entry)
    every = study.settings_of(entry).eval_every
    first = study.budget.of_rounds(fewest).rung_rounds[0]
    if study.budget.rungs is not None and isinstance(every, int) and first < every:
        problem = f"must not begin before the first evaluation, after round {every}, got round {first} of {entry.label}"
        raise InvalidSpec("budget.rungs", problem)
    points = len(evaluation_grid(fewest)) if not isinstance(every, int) else 1 - -fewest // every
    if points > LEAST_POINTS:
        return []
    has = f"{fewest} rounds" if fewest == most else f"{fewest} to {most} rounds"
    advice = (
        "evaluate more often"
        if isinstance(every, int) and every > 1
        else f"give more {unit_text(unit)} or smaller sizes"
    )
    remark = f"budget.{unit}: trials of {entry.label} have {has}, some with only {points - 1} evaluations"
    return [f"{remark}: {advice}, so that curves have at least {LEAST_POINTS} points"]


def share_left(study: Study, entry: MethodEntry, point: Mapping[str, Any] | None = None) -> float:
    """Share of the configurations of an entry that its constraints leave: of its grid, or of random ones.

    Args:
        study: The study, for the entry's sampler.
        entry: The entry.
        point: Values that are fixed.
    """
    space = entry.parameters() | {name: fixed(value) for name, value in (point or {}).items()}
    share = allowed_on_grid if name_of(study.sampler_of(entry)) in ("grid", STAGED) else allowed_share
    return share(space, entry.constraints)


def _constraints(study: Study) -> list[str]:
    """How much of the space of each entry its constraints leave."""
    shares = [(entry.label, share_left(study, entry)) for entry in study.methods if entry.constraints]
    return [f"Constraints of {label} leave about {100 * share:.2g} % of its space." for label, share in shares]


def _stages(study: Study) -> list[str]:
    """The stages of each entry that is tuned in stages, as far as its searches get."""
    lines = []
    for entry in study.methods:
        if not (sizes := entry_sizes(study, entry)):
            continue
        names = stage_names(entry.parameters(), settings_of(study.sampler_of(entry)).get("stages"))
        ahead = int(len(entry.start) > 1)
        begin, trials = 0, study.budget.trials_per_search
        told: list[str] = []
        while begin < trials and len(told) <= len(sizes):
            stage, _, end = stage_of(sizes, begin)
            group = ", ".join(names[(stage - ahead) % len(names)]) if stage >= ahead else "start"
            told.append(f"{group} ({min(end, trials) - begin} trials)")
            begin = end
        tail = f"; and so on for {trials - begin} trials" if begin < trials else ""
        lines.append(f"Stages of {entry.label}: {'; '.join(told)}{tail}.")
    return lines


def _rungs(study: Study) -> list[str]:
    """Where search trials may stop early."""
    labels: dict[tuple[int, ...], list[str]] = {}
    unit = study.budget.unit
    for label, (*rungs, _) in study.rungs.items():
        labels.setdefault(tuple(rungs), []).append(label)
    places = [
        (" and ".join(f"{rung:,}" if unit != "rounds" else str(rung) for rung in rungs), ", ".join(names))
        for rungs, names in labels.items()
        if rungs
    ]
    if not places:
        return []
    budgets = [usual_budget(study, entry) for entry in study.methods]
    whole = sum(budget.trials_per_method * budget.last_round for budget in budgets)
    share = sum(budget.search_rounds for budget in budgets) / whole
    after = "; ".join(f"{rungs} ({names})" if len(labels) > 1 else rungs for rungs, names in places)
    compared = (
        f"Search trials are compared after {f'rounds {after}' if unit == 'rounds' else f'{after} {unit_text(unit)}'}"
    )
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
    keys = [key for key in ("start", "prior") if any(getattr(e, key) != getattr(first, key) for e in study.methods)]
    if searches >= LEAST_PAIRS and keys:
        methods = "It cannot judge the methods themselves where entries have different "
        methods += f"{' and '.join(keys)}: all searches of an entry share them, and are not independent."
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
        text = _evaluated(study.settings_of(entry).eval_every, *rounds_range(study, entry))
        grids.setdefault(text, []).append(entry.label)
    return "; ".join(text + (f" ({', '.join(labels)})" if len(grids) > 1 else "") for text, labels in grids.items())


def _evaluated(every: int | str | None, fewest: int, rounds: int) -> str:
    if isinstance(every, int):
        remark = f"(costs are known to {every} rounds)"
        return f"every {every} rounds and after the last {remark}" if every > 1 else "after every round"
    grid = sorted(evaluation_grid(rounds))
    coarse = [number for number, following in pairwise(grid) if following > number + 1]
    if not coarse:
        return "after every round"
    shown = ", ".join(map(str, grid[grid.index(coarse[0]) + 1 :][:3]))
    count = f"{len(grid)} times" if fewest == rounds else f"{len(evaluation_grid(fewest))} to {len(grid)} times"
    return f"{count}, after every round to {coarse[0]}, then in steps of 5 % ({shown}, ...)"
