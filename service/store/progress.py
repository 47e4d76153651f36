"""Progress of each label of a study, counted from its trials."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from driftline.study.budget import Budget
from driftline.wire.records import TRIAL_FINISHED, LabelProgress
from service.store.schema import TRIALS
from service.store.stored_spec import StoredSpec


def of(connection: sa.Connection, specs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, LabelProgress]]:
    """Count the trials of several studies in one query.

    Args:
        connection: Connection of a running transaction.
        specs: The studies' specs by study id.

    Returns:
        Study id -> label -> progress, with every label of the spec, in the spec's order.
    """
    counted = sa.select(
        TRIALS.c.study_id,
        TRIALS.c.label,
        TRIALS.c.phase,
        TRIALS.c.state,
        sa.func.count(),
        sa.func.sum(TRIALS.c.rounds_done),
    ).where(TRIALS.c.study_id.in_(specs))
    counts: dict[str, dict[str, list[tuple[str, str, int, int]]]] = {study: {} for study in specs}
    groups = (TRIALS.c.study_id, TRIALS.c.label, TRIALS.c.phase, TRIALS.c.state)
    for study_id, label, phase, state, count, rounds in connection.execute(counted.group_by(*groups)):
        counts[study_id].setdefault(label, []).append((phase, state, count, int(rounds)))
    return {study: _labels(StoredSpec(specs[study]), counts[study]) for study in specs}


def _labels(spec: StoredSpec, counts: Mapping[str, list[tuple[str, str, int, int]]]) -> dict[str, LabelProgress]:
    labels = dict.fromkeys([*spec.methods, *sorted(counts)])
    return {label: _label(spec.budget_of(label), counts.get(label, [])) for label in labels}


def _label(budget: Budget, counts: list[tuple[str, str, int, int]]) -> LabelProgress:
    states: dict[str, dict[str, int]] = {"search": {}, "confirmation": {}}
    done = finished = finished_rounds = searched = 0
    for phase, state, count, rounds in counts:
        states[phase][state] = count
        done += rounds
        if state in TRIAL_FINISHED:
            finished += count
            finished_rounds += rounds
            searched += count if phase == "search" else 0
    existing = sum(count for _, _, count, _ in counts)
    left = max(budget.trials, existing) - finished
    searching = min(left, max(budget.trials_per_method - searched, 0))
    if budget.rounds is None:  # trials have rounds of their own: assume the mean so far
        begun = sum(count for _, state, count, rounds in counts if rounds) or 1
        rounds_left = left * max(-(-done // begun), 1)
    else:
        rounds_left = searching * budget.search_rounds // budget.trials_per_method + (left - searching) * budget.rounds
    total = finished_rounds + rounds_left
    return LabelProgress.model_validate(states | {"rounds_done": done, "rounds_total": total})
