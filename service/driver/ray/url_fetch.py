"""Copies the data at a task's URLs, again if a server is away for a moment; imports the trainers alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from trainers import MissingDataError, SpecError, local_copy, reading_only, urls_of

PAUSES_S = (2.0, 10.0)
"""How long to wait after each attempt to fetch data, but the last: a server may be away for a moment."""


def fetch(task: Any, *, fresh: bool = False) -> None:
    """Copies the data at a task's URLs, if they can be had; otherwise, whoever reads them next says why they cannot.

    Args:
        task: A task's document.
        fresh: Looks for another version than the one that this process has found.
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
    """Copies a pack's data at URLs in a thread, so that a worker reports meanwhile and is not taken for a hung one.

    Args:
        task: The task of the pack.
        urls: What the URLs must begin with.
    """

    def __init__(self, task: Any, urls: Sequence[str]) -> None:
        self._thread = threading.Thread(target=self._fetch, args=(task, urls), daemon=True)
        self._thread.start()

    def over(self, seconds: float) -> bool:
        """Whether the data are here, or cannot be had; waits for that for so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @staticmethod
    def _fetch(task: Any, urls: Sequence[str]) -> None:
        with reading_only(urls):
            fetch(task)
