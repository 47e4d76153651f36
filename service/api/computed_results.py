"""The result of a study, computed from the store."""

from typing import Any

from driftline.results.study_result import StudyResult, document_columns, study_result
from service.store.store import Store


def computed_frontier(store: Store, study_id: str) -> dict[str, Any]:
    """`driftline.results.document.frontier_document` for the study as stored now.

    Raises:
        NotFound: No such study.
    """
    return computed_result(store, study_id).document


def computed_result(store: Store, study_id: str) -> StudyResult:
    """The study's result as stored now, with the columns that its document and its page need.

    Raises:
        NotFound: No such study.
    """
    study = store.studies.get(study_id)
    curves = store.curves.arrays(study_id, document_columns(study.study.objective.quality))
    return study_result(study, store.trials.find(study_id), curves)
