"""Copies the data at a task's URLs, with retries if a server is briefly unavailable; imports only the trainers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from trainers import MissingDataError, SpecError, local_copy, reading_only, urls_of

PAUSES_S = (2.0, 10.0)
"""How long to wait between attempts to fetch data: a server may be unavailable for a moment."""


def fetch(task: Any, *, fresh: bool = False) -> None:
    """Copies the data at a task's URLs. Raises no error if they are unavailable: the next reader says why.

    Args:
        task: A task's document.
        fresh: Whether to look for another version than the one that this process has found.
    """
    for key_path, url in urls_of(task):
        for pause in (*PAUSES_S, None):
            try:
                local_copy(url, key_path, fresh=fresh)
                break
            except MissingDataError:
                if pause is None:
                    return
                time.sleep(pause)
            except SpecError:
                return


class Fetching:
    """Copies a pack's data at URLs in a thread, so that a worker can report meanwhile and does not count as hung.

    Args:
        task: The task of the pack.
        urls: Beginnings that the URLs may have.
    """

    def __init__(self, task: Any, urls: Sequence[str]) -> None:
        self._thread = threading.Thread(target=self._fetch, args=(task, urls), daemon=True)
        self._thread.start()

    def over(self, seconds: float) -> bool:
        """Waits up to `seconds`; returns whether the copying has ended, with the data or without."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @staticmethod
    def _fetch(task: Any, urls: Sequence[str]) -> None:
        with reading_only(urls):
            fetch(task)
