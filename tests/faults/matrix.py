"""Which process dies where: every site that an undisturbed study passes, or an even spread of them."""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.recorder.tracking import connect
from tests.faults.components import STUDIES
from tests.faults.fuse import Kill

Answer = dict[str, Any]
_POLLED = ("Locks.", "heartbeat", "served GET", "GET /v1/studies/ID", " dies")
_POLLS = 2  # kills at a site that every poll passes
_ROOT = Path(__file__).parents[2]
SCENARIOS = ("embedded", "plain", "paused", "retried", *STUDIES)
"""Studies that are run undisturbed. All are compared with the first, except `STUDIES`: each is another study."""


class Matrix:
    """A process that runs studies which die on the way, with the undisturbed ones to compare them with.

    Args:
        folder: For their files; small and short-lived.
        process: Runs them.

    Attributes:
        sites: By scenario and component, the sites that an undisturbed study passes, each with how often until then.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._process = process
        self._asked = 0
        self._references: dict[str, str] = {}  # by kind of study: of each scenario in `STUDIES`, and of all others
        self.sites: dict[str, dict[str, list[tuple[str, int]]]] = {}
        for undisturbed in (SCENARIOS[:1], SCENARIOS[1:]):
            for answer in self.run([(scenario, []) for scenario in undisturbed]):
                assert not answer["problems"], answer["problems"]
                folder_ = Path(answer["folder"])
                self.sites[answer["scenario"]] = _sites((folder_ / "sites").read_text().splitlines())
                self._references.setdefault(_study(answer["scenario"]), str(folder_ / "facts"))

    def run(self, points: Sequence[tuple[str, Sequence[Kill]]]) -> list[Answer]:
        """Runs a study for each (scenario, kills), several at once; answers in the order of the points."""
        assert self._process.stdout is not None
        questions = ""
        for scenario, kills in points:
            self._asked += 1
            question = {
                "scenario": scenario,
                "kills": kills,
                "reference": self._references.get(_study(scenario)),
                "folder": str(self._folder / f"{self._asked:04d}"),
                "migrated": str(self._folder / "mlflow.db"),
            }
            questions += json.dumps(question) + "\n"
        # Asked beside: a pipe full of questions would wait for a pipe full of answers.
        asking = threading.Thread(target=self._ask, args=(questions,))
        asking.start()
        answers = [json.loads(self._process.stdout.readline()) for _ in points]
        asking.join()
        return sorted(answers, key=lambda answer: int(Path(answer["folder"]).name))  # they come as they end

    def _ask(self, questions: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(questions + "\n")  # all of these, before what comes next
        self._process.stdin.flush()

    def kills(self, scenario: str, components: Iterable[str]) -> list[Kill]:
        """Everywhere that these components of a scenario can be killed."""
        sites = self.sites[scenario]
        return [(component, site, count) for component in components for site, count in sites[component]]


def _study(scenario: str) -> str:
    return scenario if scenario in STUDIES else "plain"


def kind(kill: Kill) -> tuple[str, str]:
    """What dies and where: before or after, and how often it has been passed, do not matter."""
    return kill[0], kill[1].rpartition(" ")[0]


def one_of_each(kills: Iterable[Kill]) -> list[Kill]:
    """One kill of each commit, route, file operation and call; drawn, but the same in every run.

    Examples:
        >>> one_of_each([("api", "commit Trials.create <", 1), ("api", "commit Trials.create >", 1)])
        [('api', 'commit Trials.create <', 1)]
    """
    kinds: dict[tuple[str, str], list[Kill]] = defaultdict(list)
    for kill in kills:
        kinds[kind(kill)].append(kill)
    return [random.Random(str(name)).choice(found) for name, found in kinds.items()]


def spread(found: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of these, evenly spaced, with the first and the last.

    Examples:
        >>> spread(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(found) <= most:
        return list(found)
    if most < 2:
        return list(found[: max(most, 0)])
    return [found[round(index * (len(found) - 1) / (most - 1))] for index in range(most)]


@contextmanager
def started(at_once: int) -> Iterator[Matrix]:
    """A matrix with a process of its own; its files are in memory where the system has such a folder."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="dlf", dir=memory if os.access(memory, os.W_OK) else None) as name:
        folder = Path(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's own
            connect(f"sqlite:///{folder / 'mlflow.db'}").search_experiments()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.faults.zygote", str(at_once)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        try:
            yield Matrix(folder, process)
        finally:
            process.kill()
            process.communicate()


def _sites(lines: Iterable[str]) -> dict[str, list[tuple[str, int]]]:
    """By component, the sites that a study passes; of those that are passed again and again only the first few."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for line in lines:
        component, site, count = line.split("\t")
        if int(count) <= _POLLS or not any(word in site for word in _POLLED):
            found[component].append((site, int(count)))
    return found
