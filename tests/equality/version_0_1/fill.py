"""Fills a service's database as version 0.1 left it: a study in every state. Runs with the code of version 0.1 alone.

    PYTHONPATH=TREE python -P fill.py service.db CHECKPOINTS

Times are those of a clock that begins at 1,790,000,000 and ticks at every look; ids of studies follow from it.
"""

from __future__ import annotations

import itertools
import json
import secrets
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.driver.worker import Worker
from service.schemas.access import NewToken, Quota
from service.schemas.logs import NewLine, NewLines
from service.schemas.study import Study
from service.store.core import Actor
from service.store.records import Recorded

from service.driver import checkpoints
from service.driver.search import Search
from service.store.store import Store
from tests.driver.stand_ins import StoreClient

BEGIN = 1_790_000_000
HOLDER = "driver-0/1"
ACTOR = Actor("token-1", "notebooks")
_RATES = {"client_lr": {"float": [0.02, 0.5], "log": True}, "server_lr": {"float": [0.01, 0.2], "log": True}}


def study(name: str) -> Study:
    """A small study that uses what later versions spell in other words."""
    return Study.from_json(
        {
            "name": name,
            "task": {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}, "central": {"fraction": 0.1}},
            "methods": [
                {
                    "label": "adam-clients",
                    "name": "fedavg",
                    "space": {
                        **_RATES,
                        "local_steps": {"choice": [1, 3]},
                        "client_optimizer": "adam",
                        "client_beta1": {"choice": [0.0, 0.9]},
                        "client_epsilon": 0.001,
                    },
                    "server": {"name": "yogi", "space": {"epsilon": {"float": [1e-4, 1e-2], "log": True}}},
                },
                {
                    "label": "two-way",
                    "name": "two_way_transfer",
                    "space": {
                        **_RATES,
                        "local_steps": 2,
                        "central_optimizer": "adam",
                        "central_lr": 0.01,
                        "central_momentum": {"float": [0.1, 0.9]},
                        "merge_optimizer": "sgd",
                        "merge_momentum": 0.5,
                    },
                    "schedule": {"name": "plateau", "space": {"window": {"int": [1, 3]}, "patience": 1}},
                },
                {
                    "label": "scaffold",
                    "name": "scaffold",
                    "space": {**_RATES, "local_steps": 2, "variates": "stored", "displacement_source": "batch"},
                    "start": [{"client_lr": 0.1, "server_lr": 0.1}],
                },
                {"preset": "fedadam", "space": {**_RATES, "local_steps": 2}},
            ],
            "objective": {"quality": "test_loss"},
            "budget": {"trials_per_method": 2, "rounds": 8, "front": 1, "seeds": 2},
            "sampler": "quasi_random",
            "clients_per_round": 3,
            "batch_size": 5,
            "eval_every": 2,
            "resources": {"gpu": 0, "packs": 2},
        }
    )


class Driver:
    """Drives a study without Ray, one pack after the other.

    Args:
        client: speaks to the store.
        study_id: of the study, PENDING.
        folder: for checkpoints.
    """

    def __init__(self, client: StoreClient, study_id: str, folder: Path) -> None:
        self._client = client
        self._study_id = study_id
        self._attempt = client.acquire(study_id, HOLDER).attempt
        spec = Study.from_json(client.study(study_id).spec)
        self.search = Search(
            client,
            study_id,
            spec,
            self._attempt,
            folder=str(folder),
            slots=lambda: 1,
            options={"chunk_seconds": 0.0},  # a round a step
        )
        self.search.load()

    def worker(self) -> Worker | None:
        """A worker with the next pack; None when there is none left."""
        job = self.search.next_job()
        if job is None:
            return None
        worker = Worker.__new__(Worker)
        worker.take(job.config())
        return worker

    def step(self, worker: Worker) -> bool:
        """One step of a worker; whether it was the last."""
        result = worker.step()
        self.search.report(json.loads(result["report"]))
        return bool(result["done"])

    def packs(self, most: int | None = None) -> None:
        """Trains packs to their end: so many, or all."""
        for _ in itertools.count() if most is None else range(most):
            worker = self.worker()
            if worker is None:
                return
            while not self.step(worker):
                pass

    def begin(self, rounds: int) -> Worker:
        """A worker that has done some rounds of the next pack."""
        worker = self.worker()
        assert worker is not None
        for _ in range(rounds):
            self.step(worker)
        return worker

    def release(self, state: Any, reason: str = "") -> None:
        """Lets go of the study."""
        self._client.release(self._study_id, self._attempt, state, reason)


def fill(store: Store, folder: Path) -> None:
    """Puts studies in all states, and something into every table."""
    client = StoreClient(store)

    def submitted(name: str) -> str:
        made = study(name)
        return store.create_study(
            made.to_json(), made.fingerprint(), key=f"key-{name}", request_hash="0" * 64, actor=ACTOR
        ).id

    def running(study_id: str) -> None:
        driver = Driver(client, study_id, folder)
        driver.packs(5)
        driver.begin(3)
        store.write_log(study_id, NewLines(attempt=1, lines=[NewLine(at=float(BEGIN), text="a pack begins")]))

    def paused(study_id: str) -> None:
        driver = Driver(client, study_id, folder)
        driver.packs(1)
        worker = driver.begin(3)
        client.pause(study_id)
        checkpoints.raise_flag(driver.search.flag)
        assert driver.step(worker)
        checkpoints.lower_flag(driver.search.flag)
        driver.release("PAUSED")

    def succeeded(study_id: str) -> None:
        driver = Driver(client, study_id, folder)
        driver.packs()
        driver.release(*driver.search.outcome())
        store.record(study_id, Recorded("experiment", "labels", "1"))
        store.record(study_id, Recorded("ended", "", "", version=store.study(study_id).version))

    def failed(study_id: str) -> None:
        driver = Driver(client, study_id, folder)
        driver.packs(1)
        driver.release("FAILED", "nothing could be trained")

    states: dict[str, Callable[[str], object]] = {
        "succeeded": succeeded,
        "failed": failed,
        "cancelled": client.cancel,
        "paused": paused,
        "running": running,
        "queued": lambda study_id: store.settle(study_id, "QUEUED", "waits for room"),
        "pending": lambda study_id: None,
    }
    for name, move in states.items():
        study_id = submitted(name)
        move(study_id)
        assert store.study(study_id).state == name.upper()
    store.create_token(NewToken(name="notebooks"), ACTOR)
    store.set_quota("default", Quota(studies=50), ACTOR)
    store.set_fact("fingerprint", study("succeeded").fingerprint())
    store.lock("scheduler", "scheduler-0/1", 10)


def main() -> None:
    warnings.simplefilter("ignore")
    ticks, numbers = itertools.count(BEGIN), itertools.count()
    secrets.randbits = lambda bits: next(numbers)  # ids of studies
    store = Store(sys.argv[1], clock=lambda: float(next(ticks)))
    fill(store, Path(sys.argv[2]).resolve())
    store.close()


if __name__ == "__main__":
    main()
