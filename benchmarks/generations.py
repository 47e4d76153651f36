"""How long workers are idle because samplers are asked in generations, compared with asynchronous asking.

    OMP_NUM_THREADS=1 python -m benchmarks.generations [--studies 8]

The driver's search, with its decisions and the TPE sampler, runs studies on a clock of its own: packs are not trained.
A curve follows from the matrices of a random quadratic (`benchmarks/searches.py`). A pack takes `OVERHEAD_S`, and for
each of its trials a time in proportion to its rounds, its local steps and a random factor; a diverged trial stops in
the round in which it diverged. Two labels, 64 configurations each, 8 of which are confirmed on 3 seeds. Idle is the
share of the workers' time, until the study's end, in which they train no pack.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from benchmarks.searches import ROUNDS, curve, problem
from driftline.study.spec import Study
from driftline.wire.curve_codec import Columns, decode, encode, upsert
from driftline.wire.driver_messages import NewTrial, Report, Stored, TrialResult
from driftline.wire.ids import trial_id
from driftline.wire.records import StudyPlan, StudyRecord, TrialRecord
from service.driver.search.search import Search

OVERHEAD_S = 0.9
"""A pack's start, on a worker that has trained another."""

STEP_S, SPREAD = 0.004, 0.2
"""Seconds of a round of one trial for each local step, with one more for the evaluation; logarithmic deviation."""

_SPACE = {
    "client_lr": {"float": [1e-3, 1.0], "log": True, "also": [0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True},
    "local_steps": {"choice": [1, 5, 10, 50]},
}
_NOW = datetime.now(UTC)


class Memory:
    """The API of one study, without a database."""

    def __init__(self, study: Study) -> None:
        self.record = StudyRecord(id="s", name=study.name, spec=study.to_json(), created_at=_NOW, updated_at=_NOW)
        self.rows: dict[str, TrialRecord] = {}
        self.columns: dict[str, Columns] = {}

    def study(self, study_id: str) -> StudyRecord:
        return self.record

    def trials(self, study_id: str) -> list[TrialRecord]:
        return list(self.rows.values())

    def store_plan(self, study_id: str, attempt: int, plan: StudyPlan, reason: str = "") -> StudyPlan:
        return plan

    def create_trials(self, study_id: str, attempt: int, trials: Sequence[NewTrial]) -> list[TrialRecord]:
        made = [
            TrialRecord(
                id=trial_id("s", new.label, new.phase, new.number),
                study_id="s",
                created_at=_NOW,
                updated_at=_NOW,
                **new.model_dump(),
            )
            for new in trials
        ]
        self.rows |= {record.id: record for record in made}
        return made

    def start_pack(
        self, study_id: str, attempt: int, pack: str, trials: Sequence[str], gpus: float = 0.0
    ) -> list[TrialRecord]:
        changes = {"state": "RUNNING", "pack": pack}
        self.rows |= {trial: self.rows[trial].model_copy(update=changes) for trial in trials}
        return [self.rows[trial] for trial in trials]

    def report(self, study_id: str, report: Report) -> Stored:
        for trial, blocks in report.reports.items():
            for block in blocks:
                self.columns[trial] = upsert(self.columns.get(trial, {}), decode(block))
        return Stored(version=0)

    def curves(self, study_id: str, trials: Sequence[str]) -> dict[str, Columns]:
        return {trial: self.columns[trial] for trial in trials if trial in self.columns}

    def finish(self, study_id: str, attempt: int, results: Sequence[TrialResult]) -> Stored:
        for result in results:
            self.rows[result.trial] = self.rows[result.trial].model_copy(update={"state": result.state})
        return Stored(version=0)


def search_in_memory(study: Study, workers: int) -> tuple[Memory, Search]:
    """A study's search, at its beginning, and the memory that it uses in place of an API."""
    memory = Memory(study)
    client: Any = memory  # it has the methods of a DriverClient that a search calls
    search = Search(client, "s", study, 1, folder="/nowhere", slots=lambda: workers)
    search.load()
    return memory, search


def study(seed: int, asking: str, packs: int | str) -> Study:
    """The study that is simulated."""
    methods = [{"label": label, "name": "fedavg", "space": _SPACE} for label in ("one", "other")]
    return Study.from_json(
        {
            "name": "simulated",
            "task": {"name": "quadratic", "problem": "two_clients"},
            "methods": [
                {**entry, "server": {"name": "sgd", "space": {"momentum": {"choice": [0.0, 0.9]}}}} for entry in methods
            ],
            "objective": {"quality": "loss"},
            "budget": {"trials_per_method": 64, "rounds": ROUNDS, "asking": asking},
            "resources": {"gpu": 0, "packs": packs},
            "seed": seed,
        }
    )


def trained(seed: int, setting: Mapping[str, Any]) -> tuple[dict[str, list[Any]], float]:
    """The columns of a trial, and how long it takes."""
    hessians, centers = problem(seed % 10)
    losses = curve(hessians, centers, dict(setting))
    draw = np.random.default_rng([seed, zlib.crc32(str(sorted(setting.items())).encode())])
    rounds = ROUNDS if losses is not None else int(draw.integers(1, ROUNDS))
    seconds = STEP_S * rounds * (1 + setting["local_steps"]) * float(np.exp(SPREAD * draw.normal()))
    if losses is None:
        return {"round": [0, rounds], "loss": [1.0, None], "diverged": [False, True]}, seconds
    numbers = list(range(ROUNDS + 1))
    return {"round": numbers, "loss": [float(loss) for loss in losses], "diverged": [False] * len(numbers)}, seconds


def idle(seed: int, workers: int, asking: str, packs: int | str) -> float:
    """The idle share of one study."""
    whole = study(seed, asking, packs)
    _, search = search_in_memory(whole, workers)
    now, busy, count = 0.0, 0.0, 0
    events: list[tuple[float, int, dict[str, Any]]] = []
    while True:
        while job := search.next_job():
            members = search.table.packs[job.pack].trials
            found = [trained(seed, search.table.trials[trial].hyperparameters) for trial in members]
            seconds = OVERHEAD_S + sum(spent for _, spent in found)
            facts = {"pack": job.pack, "pid": 1, "host": "h", "remark": None, "error": None, "stopped": False}
            begun = {
                **facts,
                "reports": [],
                "rounds_done": 0,
                "checkpoint": None,
                "plan": {"oracle": "x"},
                "done": False,
            }
            ended = {**begun, "reports": [encode(columns) for columns, _ in found], "rounds_done": ROUNDS, "done": True}
            busy += seconds
            heapq.heappush(events, (now + min(OVERHEAD_S, seconds), count := count + 1, begun))
            heapq.heappush(events, (now + seconds, count := count + 1, ended))
        if search.finished:
            return 1 - busy / (workers * now)
        now, _, report = heapq.heappop(events)
        search.report(report)


def main() -> None:
    """Prints a line for each number of workers and width of packs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=8)
    parser.add_argument("--packs", default="auto", nargs="*")
    options = parser.parse_args()
    print("| workers | packs | idle, asynchronous | idle, generations | more |")
    print("|---|---|---|---|---|")
    for workers in (1, 2, 8):
        for packs in options.packs if isinstance(options.packs, list) else [options.packs]:
            given = packs if packs == "auto" else int(packs)
            shares = [
                statistics.mean(idle(seed, workers, asking, given) for seed in range(options.studies))
                for asking in ("asynchronous", "generations")
            ]
            row = [
                str(workers),
                packs,
                *(f"{share:.1%}" for share in shares),
                f"{shares[1] - shares[0]:.1%}",
            ]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
