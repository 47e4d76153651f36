"""The result of a study, computed from the store."""

from collections.abc import Callable
from typing import Any

import numpy as np

from driftline.results.curves import Array, finite
from driftline.results.ledger import COUNTERS
from driftline.results.show.page import frontier_html
from driftline.results.study_result import StudyResult, document_columns, quality_columns, study_result
from service.store.store import Store
from trainers import cost_named

Arrays = dict[str, Array]

OTHER_COSTS_ROUNDS = 2_000_000
"""Reported rounds of a study up to which its page also reads it with the costs that are not its own."""


def computed_frontier(store: Store, study_id: str) -> dict[str, Any]:
    """`driftline.results.document.frontier_document` for the study as stored now.

    Raises:
        NotFound: No such study.
    """
    return computed_result(store, study_id).document


def computed_page(store: Store, study_id: str) -> str:
    """The study's frontier.html as stored now. The page of a running or of a large study has no other costs.

    Raises:
        NotFound: No such study.
    """
    study = store.studies.get(study_id)
    others = study.finished and store.trials.reported_rounds(study_id) <= OTHER_COSTS_ROUNDS
    result = computed_result(store, study_id, other_costs=others)
    return frontier_html(result.document, result.curves, others=others)


def computed_result(store: Store, study_id: str, *, other_costs: bool = False) -> StudyResult:
    """The study's result as stored now, with the columns that its document needs.

    Args:
        store: The database.
        study_id: Id of the study.
        other_costs: Whether to read also what its page needs for costs that are not the study's own.

    Raises:
        NotFound: No such study.
    """
    study = store.studies.get(study_id)
    objective = study.study.objective
    if other_costs:
        curves = store.curves.arrays(study_id, document_columns(objective.quality))
    else:
        names = {*quality_columns(objective.quality), *cost_named(objective.cost).counters}
        curves = store.curves.arrays(study_id, {*names, *COUNTERS}, keep=_lean(names))
    return study_result(study, store.trials.find(study_id), curves)


def _lean(names: set[str]) -> Callable[[Arrays], Arrays]:
    """Keeps these columns, and of the other columns only the largest value, which is all that a ledger needs.

    Trials that reported after the same rounds share the array of rounds: a large study takes a third of the memory.
    """
    shared: dict[bytes, Array] = {}

    def keep(columns: Arrays) -> Arrays:
        kept = {name: values.copy() if values.base is not None else values for name, values in columns.items()}
        if "round" in kept and len(kept["round"]):
            rounds = kept["round"]
            kept["round"] = shared.setdefault(rounds.tobytes(), rounds)
            for name in kept.keys() - names:
                kept[name] = np.broadcast_to(finite(kept[name]).max(), rounds.shape)
        return kept

    return keep
