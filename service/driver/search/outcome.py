"""How trials and studies end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from driftline.errors import InvalidSpec
from driftline.results import objectives
from driftline.results.curves import LARGEST
from driftline.study.spec import Study
from driftline.wire.driver_messages import Released, TrialResult
from driftline.wire.records import Values
from service.driver.search.forecast import RATES
from service.driver.search.rules import RULES
from service.driver.search.study_rows import Row
from trainers import cost_named


def needed(study: Study) -> frozenset[str]:
    """The columns from which `trial_result` and prospects at rungs are computed."""
    forecast = RATES if RULES[study.budget.rung_rule].looks_ahead else ()
    counters = cost_named(study.objective.cost).counters
    return frozenset({"round", "diverged", study.objective.quality, *counters, *forecast})


def trial_result(study: Study, row: Row, columns: Mapping[str, Sequence[Any]]) -> TrialResult:
    """The result of a trial that was trained to its end.

    Args:
        study: The study, for its objective and budget.
        row: The trial.
        columns: All its rounds, with the columns that are `needed`.

    Returns:
        DIVERGED if the trial reported that, FAILED if its metric was never finite, otherwise COMPLETE with its values.

    Raises:
        InvalidSpec: The trial does not report the study's metric, or does not count its cost.
    """
    if any(columns.get("diverged", ())):
        return TrialResult(trial=row.id, state="DIVERGED")
    objective = study.objective
    curve = row.curve(columns)
    try:
        values = objectives.values(curve, objective.quality, objective.cost)
    except InvalidSpec as error:
        if objective.quality not in columns or error.path == "objective.cost":
            raise
        return TrialResult(
            trial=row.id, state="FAILED", error=f"{objective.quality} was never a number of at most {LARGEST:g}"
        )
    return TrialResult(trial=row.id, state="COMPLETE", values=Values(**values))


def rung_result(study: Study, row: Row, columns: Mapping[str, Sequence[Any]], reached: int) -> TrialResult:
    """The result of a trial that ends at a rung.

    Args:
        study: The study, for its objective.
        row: The trial.
        columns: All its rounds, with the columns that are `needed`.
        reached: At how many rungs it has values.

    Returns:
        DIVERGED if the trial reported that, FAILED if its metric was never finite, otherwise STOPPED.
    """
    if not reached or any(columns.get("diverged", ())):
        return trial_result(study, row, columns)
    return TrialResult(trial=row.id, state="STOPPED")


def outcome(rows: Collection[Row]) -> tuple[Released, str]:
    """State and reason of a study whose trials are all finished: FAILED only if every trial failed.

    Args:
        rows: All trials of the study.
    """
    failed = [row for row in rows if row.state == "FAILED"]
    if not failed:
        return "SUCCEEDED", ""
    first = f"the first: {failed[0].error}"
    if len(failed) == len(rows):
        return "FAILED", f"every trial has failed; {first}"
    return "SUCCEEDED", f"{len(failed)} of {len(rows)} trials have failed; {first}"
