"""Computes results of large studies in a process of its own, in bounded memory, one at a time.

In the API's process their curves would take the memory of all other requests, and the allocator would keep it. Results
of small studies are computed in the API's threads: starting a process takes longer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, Unavailable, from_problem, problem
from service.api.check_process import container_bytes, limit_memory
from service.api.computed_results import computed_frontier, computed_page
from service.api.response_cache import Body
from service.child_process import ChildProcess, answer_lines
from service.garbage import collect_rarely
from service.store.store import Store

HERE_ROUNDS = 300_000
"""Reported rounds of a study up to which its result is computed in the API's own process: at most 50 MiB."""

RESULT_S = 300.0
"""Seconds that a result may take."""

RESULT_BYTES = 2 * 2**30
"""Most memory that the process may take beyond its start, if the container has no limit. Enforced on Linux only."""

IDLE_S = 20.0
"""Seconds without a request after which the process ends, and gives back its memory."""

_SHARE = 0.32  # of the container's memory: 640 MiB of 2 GiB
_LEAST_BYTES = 64 * 2**20
_LOG = logging.getLogger(__name__)


class ResultProcess:
    """The results of the studies of one store.

    Args:
        store: The store, for small studies.
        url: URL of its database, for the process.
        most_bytes: Memory that the process may take; by default a share of what the container has.
        here_rounds: Reported rounds up to which a study is small.
    """

    def __init__(
        self,
        store: Store,
        url: str,
        *,
        most_bytes: int | None = None,
        here_rounds: int = HERE_ROUNDS,
    ) -> None:
        self._store = store
        self._url = url
        self._most_bytes = result_bytes() if most_bytes is None else most_bytes
        self._here_rounds = here_rounds
        self._process = ChildProcess(__name__, str(self._most_bytes), what="computes results")
        self._turn = threading.Lock()
        self._refused: dict[tuple[str, str], int] = {}  # rounds at which a study was too large; it only grows

    def frontier(self, study_id: str) -> Body | dict[str, Any]:
        """The frontiers of a study.

        Raises:
            NotFound: No such study.
            Unavailable: The study is too large.
        """
        rounds = self._store.trials.reported_rounds(study_id)
        if rounds <= self._here_rounds:
            return computed_frontier(self._store, study_id)
        return Body.text(self._ask("frontier", study_id, rounds), "application/json")

    def page(self, study_id: str) -> str:
        """The study's frontier.html.

        Raises:
            NotFound: No such study.
            Unavailable: The study is too large.
        """
        rounds = self._store.trials.reported_rounds(study_id)
        if rounds <= self._here_rounds:
            return computed_page(self._store, study_id)
        return self._ask("page", study_id, rounds)

    def close(self) -> None:
        """Ends the process; a result that is being computed fails."""
        self._process.end()

    def _ask(self, what: str, study_id: str, rounds: int) -> str:
        if self._refused.get((what, study_id), sys.maxsize) <= rounds:
            raise self._too_large(rounds)
        with self._turn:
            answer = self._process.ask(json.dumps([self._url, what, study_id]), RESULT_S)
        outcome = json.loads(answer) if answer else {}
        if "problem" in outcome:
            raise from_problem(outcome["problem"]["status"], outcome["problem"])
        if "text" not in outcome:
            self._refused[(what, study_id)] = rounds
            raise self._too_large(rounds)
        return str(outcome["text"])

    def _too_large(self, rounds: int) -> Unavailable:
        bound = f"{self._most_bytes / 2**20:.0f} MiB of memory and {RESULT_S:g} s"
        return Unavailable(
            f"a result must take at most {bound} in the API, got a study of {rounds:,} rounds: give the API's "
            "container more memory, or compute it on your own computer with  driftline frontier STUDY --cost COST"
        )


def result_bytes() -> int:
    """Memory that the process may take, so that it fits into the API's container beside the other processes."""
    limit = container_bytes()
    return RESULT_BYTES if limit is None else max(int(limit * _SHARE), _LEAST_BYTES)


@functools.cache
def _store(url: str) -> Store:
    return Store(url)


def _answer(line: str) -> str:
    url, what, study_id = json.loads(line)
    try:
        store = _store(url)
        if what == "page":
            return json.dumps({"text": computed_page(store, study_id)})
        return json.dumps({"text": Body.json(computed_frontier(store, study_id))})
    except MemoryError:
        _LOG.warning("the result of study %s takes more memory than the process may have", study_id)
        return "{}"
    except DriftlineError as error:
        return json.dumps({"problem": problem(error)})
    except Exception:
        _LOG.exception("the result of study %s could not be computed", study_id)
        return json.dumps({"problem": problem(DriftlineError("the service failed unexpectedly; its log says why"))})


def _main(most_bytes: int) -> None:
    """Answers requests."""
    collect_rarely()
    import driftline.results.theory  # noqa: F401  # load it before memory is limited

    with contextlib.suppress(OSError):  # there is no such file except on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, the kernel ends this process first
    os.nice(5)
    limit_memory(most_bytes)
    answer_lines(_answer, IDLE_S)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the parent
        _main(int(sys.argv[1]))
