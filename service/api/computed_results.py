"""Results of a study, computed from its stored curves and kept as long as nothing new is stored."""

import threading
from collections import OrderedDict
from typing import Any
from weakref import WeakValueDictionary

from driftline.results import comparison as compare
from driftline.results.study_result import needed, study_result
from service.store.store import Store


class Results:
    """Frontiers and comparisons by study; the newest few are kept until the study's version grows.

    A frontier and its comparisons share one computation. `cached.Bodies`, which keeps their texts apart, cannot see to
    that; it sees to it that those who wait for a text hold no thread.

    Args:
        store: Where the curves are.
        kept: How many studies' frontiers are kept.
    """

    def __init__(self, store: Store, kept: int = 8) -> None:
        self._store = store
        self._kept = kept
        self._cache: OrderedDict[str, tuple[int, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()
        self._turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # of those who ask just now

    def frontier(self, study_id: str) -> dict[str, Any]:
        """What `driftline.results.document.frontier_document` makes of the study as it is stored now.

        Raises:
            NotFound: No such study.
        """
        with self._lock:
            turn = self._turns.setdefault(study_id, threading.Lock())
        with turn:  # two who ask at once have it computed once
            version = self._store.glance(study_id).version  # read first: what is stored meanwhile is computed next time
            with self._lock:
                cached = self._cache.get(study_id)
                if cached is not None and cached[0] == version:
                    self._cache.move_to_end(study_id)
                    return cached[1]
            result = self._compute(study_id)
            with self._lock:
                self._cache[study_id] = (version, result)
                self._cache.move_to_end(study_id)
                while len(self._cache) > self._kept:
                    self._cache.popitem(last=False)
            return result

    def compare(self, study_id: str, a: str, b: str) -> dict[str, Any]:
        """What `driftline.results.comparison.compare` says about two labels of the study.

        Raises:
            NotFound: No such study, or no such label.
        """
        return compare.compare(self.frontier(study_id), a, b)

    def _compute(self, study_id: str) -> dict[str, Any]:
        store = self._store
        study = store.study(study_id)
        curves = store.curve_arrays(study_id, needed(study.study.objective.quality))
        return study_result(study, store.trials(study_id), curves).document
