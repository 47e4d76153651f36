"""The result of a study, computed from the store."""

from typing import Any

from driftline.results.study_result import needed, study_result
from service.store.store import Store


def computed_frontier(store: Store, study_id: str) -> dict[str, Any]:
    """`driftline.results.document.frontier_document` for the study as stored now.

    Raises:
        NotFound: No such study.
    """
    study = store.studies.get(study_id)
    curves = store.curves.arrays(study_id, needed(study.study.objective.quality))
    return study_result(study, store.trials.find(study_id), curves).document
