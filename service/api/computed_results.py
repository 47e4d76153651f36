"""The result of a study, computed from what is stored of it."""

from typing import Any

from driftline.results.study_result import needed, study_result
from service.store.store import Store


def computed_frontier(store: Store, study_id: str) -> dict[str, Any]:
    """What `driftline.results.document.frontier_document` makes of the study as it is stored now.

    Raises:
        NotFound: No such study.
    """
    study = store.studies.get(study_id)
    curves = store.curves.arrays(study_id, needed(study.study.objective.quality))
    return study_result(study, store.trials.find(study_id), curves).document
