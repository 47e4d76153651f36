"""The list of a study's trials: its digest, whether it is reproducible, and the first difference of two lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from driftline.study.budget import Budget
from driftline.study.sampler import learns
from driftline.study.stages import stage_of
from driftline.wire.ids import trial_id
from driftline.wire.records import TRIAL_FINISHED, StudyPlan, StudyRecord, TrialRecord
from trainers import shown


def trial_list(study: StudyRecord, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """What the result says about the list of trials.

    Args:
        study: The study.
        trials: All its trials, in any order.

    Returns:
        ``{"digest", "trials", "asking", "plan", "reproducible", "exceptions", "looks"}``. Two studies with the same
        digest have the same trials: labels, numbers, seeds and hyperparameters. `reproducible` says whether the same
        study under the same plan has them again; if not, `exceptions` says why, one line each.
        `looks` counts how often there were confirmed results: 1, and one more for each extension after them, by search
        trials or by seeds.
    """
    whole, plan = study.study, study.plan
    lines = [] if plan is None else list(plan.exceptions)
    if whole.budget.asking == "asynchronous" and learns(whole.leading_sampler):
        lines.append("asked asynchronously: what is tried depends on the order in which trials end")
    if whole.budget.asking == "asynchronous" and whole.budget.rungs is not None:
        lines.append("compared asynchronously: which trials stop at a rung depends on the order in which they arrive")
    lines += [line for trial in trials if trial.state == "FAILED" and (line := missed(trial, trials, plan))]
    lines += _extended(trials, whole.budget)
    return {
        "digest": hashlib.sha256(json.dumps([_facts(trial) for trial in _ordered(trials)]).encode()).hexdigest(),
        "trials": len(trials),
        "asking": whole.budget.asking,
        "plan": None if plan is None else plan.model_dump(exclude={"exceptions"}),
        "reproducible": plan is not None and not lines,
        "exceptions": list(dict.fromkeys(lines)),
        "looks": _looks(trials, whole.budget),
    }


def missed(failed: Any, trials: Iterable[Any], plan: StudyPlan | None) -> str | None:
    """What was decided without the result of a failed trial; None if nothing was.

    Args:
        failed: The trial, or anything with its label, phase, number and state.
        trials: All trials of the study, in the same form.
        plan: The study's plan.
    """
    if failed.phase != "search":
        return None
    without = f"without the result of {name(failed)}, which had failed"
    label_trials = [trial for trial in trials if trial.label == failed.label]
    generation = 0 if plan is None else plan.generation
    own_first = failed.number // generation * generation if generation else 0
    first = own_first + 2 * generation  # first trial of the generations that were proposed without its result
    if plan is not None and (sizes := plan.stages.get(failed.label)):
        _, own_first, first = stage_of(sizes, failed.number)
    if first and any(trial.phase == "search" and trial.number >= first for trial in label_trials):
        return f"{failed.label}.s{first:05d} and later trials were asked for {without}"
    if any(trial.phase == "confirmation" for trial in label_trials):
        return f"the configurations of {failed.label} to confirm were chosen {without}"
    compared = (trial for trial in label_trials if trial.state == "STOPPED")
    if first and any(trial.number >= own_first for trial in compared):
        return f"trials of {failed.label} were stopped at rungs {without}"
    return None


def _extended(trials: Sequence[TrialRecord], budget: Budget) -> list[str]:
    """The labels to which an extension added search trials after configurations of the same search were confirmed."""
    first: dict[tuple[str, int], datetime] = {}
    for trial in trials:
        if trial.phase == "confirmation":
            key = trial.label, budget.search_of(trial.configuration)
            first[key] = min(first.get(key, trial.created_at), trial.created_at)
    labels = {
        trial.label
        for trial in trials
        if trial.phase == "search"
        and trial.created_at > first.get((trial.label, budget.search_of(trial.number)), trial.created_at)
    }
    return [f"{label} was extended by search trials after configurations were confirmed" for label in sorted(labels)]


def _looks(trials: Sequence[TrialRecord], budget: Budget) -> int:
    """1, and one more for each time that a search of a label got more trials after a confirmation trial had ended."""
    searches: dict[tuple[str, int], list[TrialRecord]] = {}
    for trial in sorted(trials, key=lambda trial: trial.created_at):
        searches.setdefault((trial.label, budget.search_of(trial.configuration)), []).append(trial)
    return max((_looks_at(search_trials) for search_trials in searches.values()), default=1)


def _looks_at(search_trials: Iterable[TrialRecord]) -> int:
    """How often one search had results; its trials are in the order in which they were created."""
    looks, seen = 1, None  # `seen`: when this look's first confirmation trial ended
    for trial in search_trials:
        if seen is not None and trial.created_at > seen:
            looks, seen = looks + 1, None
        if trial.phase == "confirmation" and trial.state in TRIAL_FINISHED:
            seen = trial.updated_at if seen is None else min(seen, trial.updated_at)
    return looks


def first_difference(one: Iterable[TrialRecord], other: Iterable[TrialRecord]) -> str | None:
    """The first trial that differs between two studies, and in what; None if they have the same trials.

    Trials are in the order of their numbers, first those of the search. A trial that only one study has so far differs.
    """
    left, right = ({name(trial): trial for trial in _ordered(trials)} for trials in (one, other))
    for trial in _ordered({**right, **left}.values()):
        key = name(trial)
        if key not in left or key not in right:
            return f"{key}: only the {'first' if key in left else 'second'} study has it"
        a, b = _values(left[key]), _values(right[key])
        for item in {**a, **b}:
            if a.get(item) != b.get(item):
                return f"{key}: {item} is {shown(a.get(item))} and {shown(b.get(item))}"
    return None


def name(trial: Any) -> str:
    """A trial's name within its study.

    Examples:
        >>> from types import SimpleNamespace
        >>> name(SimpleNamespace(label="fedavg", phase="search", number=3))
        'fedavg.s00003'
    """
    return trial_id("", trial.label, trial.phase, trial.number).removeprefix(".")


def _ordered(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    return sorted(trials, key=lambda trial: (trial.phase != "search", trial.number, trial.label))


def _values(trial: TrialRecord) -> Mapping[str, Any]:
    values = trial.hyperparameters
    return {"seed": trial.seed, "configuration": trial.configuration, **{key: values[key] for key in sorted(values)}}


def _facts(trial: TrialRecord) -> list[Any]:
    return [name(trial), *_values(trial).items()]
