"""How many rounds a trial has: those of the budget, or as many as fit into what it may spend.

With a budget of examples, tokens or client gradients, trials of different sizes (local steps, batches, cohorts) have
different numbers of rounds. What a round spends is known before training (`trainers.spend`), so that rungs are at the
same fractions of the budget in every trial.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np

from driftline.errors import InvalidSpec
from driftline.study.budget import Budget, unit_text
from driftline.study.entries import MethodEntry
from driftline.study.spec import Study
from driftline.study.trial_parts import document_of
from search_spaces.parameters import Float
from trainers import SpecError, UncountedSpend, parse, spend

DRAWS = 32
"""Random configurations from which the usual rounds of an entry are estimated."""


def trial_budget(study: Study, entry: MethodEntry, hyperparameters: Mapping[str, Any]) -> Budget:
    """The budget of a trial, in rounds, with its rungs as rounds.

    Args:
        study: The study.
        entry: The trial's entry.
        hyperparameters: Its configuration.

    Raises:
        InvalidSpec: The budget has no room for one round, or too few rounds for the rungs.
        SpecError: The trial's document is invalid.
    """
    budget = study.budget
    if budget.unit == "rounds":
        return study.budget_of(entry)
    document = json.dumps(document_of(study, entry.label, [hyperparameters], study.seed, 1), sort_keys=True)
    try:
        rounds, per_round = _rounds_within(document, budget.unit, budget.amount)
    except UncountedSpend as error:
        entrys = f"methods[{study.methods.index(entry)}]."
        shared = "stragglers" if entry.stragglers is None else f"{entrys}stragglers"
        keys = {"task": f"budget.{budget.unit}", "method.name": f"{entrys}name", "stragglers": shared}
        raise InvalidSpec(keys[error.path], str(error).removeprefix(f"{error.path} ")) from error
    if not rounds:
        sizes = ", ".join(f"{name}={value}" for name, value in hyperparameters.items() if isinstance(value, int))
        came = f"got {per_round:,.7g} {unit_text(budget.unit)} a round" + (f" with {sizes}" if sizes else "")
        raise InvalidSpec(f"budget.{budget.unit}", f"must leave room for a round of {entry.label}, {came}")
    try:
        return budget.of_rounds(rounds)
    except InvalidSpec as error:
        came = f"got {list(budget.rung_amounts[:-1])} of {budget.trial_text}"
        problem = f"must be at least a round apart in every trial of {entry.label}, {came}"
        raise InvalidSpec("budget.rungs", problem) from error


@lru_cache(maxsize=4096)
def _rounds_within(document: str, unit: str, amount: int) -> tuple[int, float]:
    """(rounds that fit, what a round spends) of a trial, from its document."""
    spent = spend(parse(json.loads(document)), unit)
    return spent.rounds_within(amount), float(spent.each + spent.once)


def usual_budget(study: Study, entry: MethodEntry) -> Budget:
    """The budget of an entry's trials in rounds; their mean over random configurations where they differ."""
    if study.budget.unit == "rounds":
        return study.budget_of(entry)
    generator, space = np.random.default_rng(0), entry.parameters()
    rounds = []
    for _ in range(DRAWS):
        drawn = {name: parameter.sample(generator) for name, parameter in space.items()}
        rounds.append(trial_budget(study, entry, drawn).last_round)
    return study.budget.of_rounds(round(fmean(rounds)))


def rounds_range(study: Study, entry: MethodEntry) -> tuple[int, int]:
    """The fewest and the most rounds of an entry's trials.

    What a round spends grows with each size, whatever the others are, so that hyperparameters are tried one by one.

    Raises:
        InvalidSpec: Some configuration has room for no round, or for too few for the rungs.
    """
    if study.budget.unit == "rounds":
        return study.budget_of(entry).last_round, study.budget_of(entry).last_round
    space = entry.parameters()
    ends = []
    for best in (min, max):
        point = {name: parameter.ends()[0] for name, parameter in space.items()}
        for name, parameter in space.items():
            rounds: dict[int, int] = {}  # index of a value among the ends -> rounds with it
            for index, value in enumerate(() if isinstance(parameter, Float) else parameter.ends()):
                with suppress(SpecError):  # choices that exclude each other
                    rounds[index] = trial_budget(study, entry, {**point, name: value}).last_round
            if rounds:
                point[name] = parameter.ends()[best(rounds, key=rounds.__getitem__)]
        ends.append(trial_budget(study, entry, point).last_round)
    return ends[0], ends[1]
