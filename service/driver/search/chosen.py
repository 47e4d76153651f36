"""The configurations of finished searches that are run again on fresh seeds, chosen from the stored curves."""

from __future__ import annotations

from driftline.client.driver_client import DriverClient
from driftline.results.confirmation import to_confirm
from driftline.results.curves import TrialCurve
from driftline.study.spec import Study
from service.driver.search.outcome import needed
from service.driver.search.state import StudyTable

CURVES_AT_ONCE = 64
"""Curves of finished trials that are read in one request."""


class Chosen:
    """Chooses what to confirm, as `policy.decide` asks for it; see `driftline.results.confirmation`.

    Choices are kept, because a finished search no longer changes while its driver lives.

    Args:
        client: Connection to the API, for the curves.
        study_id: Id of the study.
        study: Its specification.
        table: Its trials.
    """

    def __init__(self, client: DriverClient, study_id: str, study: Study, table: StudyTable) -> None:
        self._client = client
        self._study_id = study_id
        self._study = study
        self._table = table
        self._found: dict[tuple[str, int], list[int]] = {}

    def __call__(self, label: str, search: int, count: int) -> list[int]:
        """The first `count` configurations to confirm of a finished search; fewer if it has fewer."""
        numbers = self._found.get((label, search), [])
        if len(numbers) < min(count, self._study.budget.trials_per_search):
            objective = self._study.objective
            curves = self._curves(label, search)
            numbers = self._found[label, search] = to_confirm(curves, objective.quality, objective.cost, count)
        return numbers[:count]

    def _curves(self, label: str, search: int) -> list[TrialCurve]:
        of_search, columns = self._study.budget.search_of, needed(self._study)
        rows = [row for row in self._table.trials.of(label, "search") if of_search(row.configuration) == search]
        curves: list[TrialCurve] = []
        for start in range(0, len(rows), CURVES_AT_ONCE):
            batch = rows[start : start + CURVES_AT_ONCE]
            read = self._client.curves(self._study_id, [row.id for row in batch])
            for row in batch:
                reported = read.get(row.id, {})
                kept = {name: values for name, values in reported.items() if name in columns}
                curves.append(row.curve(kept, search))
        return curves
