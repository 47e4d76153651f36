"""Pauses of single studies between attempts to do something that has failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from driftline.backoff import pauses

FIRST_S, LONGEST_S = 2.0, 60.0


class Pauses:
    """Each pause of a study is twice as long as the one before, up to `LONGEST_S`.

    Args:
        steady: A monotonic clock, in seconds.
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._until: dict[str, tuple[float, Iterator[float]]] = {}  # by study: when its pause ends, and the next pauses

    def lengthen(self, study_id: str) -> None:
        """Begins the study's next pause."""
        _, following = self._until.get(study_id) or (0.0, pauses(FIRST_S, LONGEST_S))
        self._until[study_id] = (self._steady() + next(following), following)

    def holds(self, study_id: str) -> bool:
        """Whether the study is in a pause."""
        return study_id in self._until and self._until[study_id][0] > self._steady()

    def end(self, study_id: str) -> None:
        """Ends the study's pause; its next one is the shortest again."""
        self._until.pop(study_id, None)

    def keep(self, study_ids: Collection[str]) -> None:
        """Forgets all other studies."""
        self._until = {study_id: until for study_id, until in self._until.items() if study_id in study_ids}
