"""Whether driver, API and store keep up with many workers: whole searches against a stand-in for training.

    OMP_NUM_THREADS=1 python -m benchmarks.throughput [--trials 2000] [--workers 100] [--rounds 50] [--sampler random]
    OMP_NUM_THREADS=1 python -m benchmarks.throughput --ray --trials 5000 --workers 4 --rounds 5

A driver's search runs as under Ray Tune, in this process. API and store (SQLite) run in a process of their own. The
workers are stand-ins: each hands in the curve of one real trial at once, for every trial of its pack, so that nothing
is measured but the driver (decisions, decoding), its samplers, the API and the store. A line for every 500 trials has
processor time and reports a second since the line before, and the resident memory of the driver's process.

With `--ray`, Ray Tune runs the packs in workers of its own, 64 trials of a quadratic in each.
"""

from __future__ import annotations

import argparse
import base64
import cProfile
import multiprocessing
import pstats
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.processor_time import resident_mb, seconds
from driftline.client.driver_client import DriverClient
from driftline.study.spec import Study
from driftline.wire.curve_codec import encode
from driftline.wire.ids import holder
from service.api.app import create_app
from service.api.auth.tokens import Tokens
from service.api.http_server import Server
from service.driver.job import PackJob
from service.driver.lease import Watch
from service.driver.ray import cluster
from service.driver.ray.tune import fit
from service.driver.ray.worker import columns
from service.driver.search.search import Search
from service.samplers.build import build
from service.samplers.sampler import Hyperparameters, Sampler
from service.store.store import Store
from trainers import Pack, parse

SPACE = {
    "client_lr": {"float": [1e-3, 1.0], "log": True},
    "server_lr": {"float": [0.1, 10.0], "log": True},
    "local_steps": {"choice": [1, 5, 10]},
}


class TimedSampler:
    """A sampler that counts its processor seconds, and those of all others.

    Args:
        sampler: The sampler.
    """

    spent = 0.0

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def ask(self, number: int) -> Hyperparameters:
        """See `service.samplers.sampler.Sampler`."""
        began = time.thread_time()
        hyperparameters = self._sampler.ask(number)
        TimedSampler.spent += time.thread_time() - began
        return hyperparameters

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """See `service.samplers.sampler.Sampler`."""
        self._sampler.pending(number, hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """See `service.samplers.sampler.Sampler`."""
        self._sampler.tell(number, hyperparameters, values, diverged)


def serve(folder: str, end: Connection) -> None:
    """Runs API and store until the other end of the pipe closes."""
    store = Store(Path(folder, "driftline.db"))
    tokens, token = Tokens.random()
    server = Server(create_app(store, tokens))
    end.send((server.url, token, server.socket))
    end.poll(None)
    server.close()
    store.close()


TASKS: dict[bool, dict[str, Any]] = {
    False: {
        "task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
        "clients_per_round": 10,
        "batch_size": 20,
        "objective": {"quality": "test_loss", "cost": "rounds"},
    },
    True: {
        "task": {"name": "quadratic", "problem": "two_clients"},
        "objective": {"quality": "loss", "cost": "rounds"},
        "resources": {"packs": 64},
    },
}
"""Of the study, without Ray and with it."""


def study(trials: int, rounds: int, sampler: str, ray: bool) -> Study:
    """A search without confirmation."""
    return Study.from_json(
        {
            "name": "throughput",
            **TASKS[ray],
            "eval_every": 1,
            "methods": [{"label": "fedavg", "name": "fedavg", "space": SPACE}],
            "sampler": sampler,
            "budget": {"trials_per_method": trials, "rounds": rounds, "seeds": 0},
        }
    )


def trained(job: PackJob) -> tuple[list[str], dict[str, Any]]:
    """The blocks of one real trial, and how its pack was computed."""
    pack = Pack.from_spec(parse(job.document))
    curve = columns(pack.advance(), pack.members)[0]
    return [base64.b64encode(block).decode("ascii") for block in encode(curve)], {**pack.plan.to_json(), **pack.work}


def report(job: PackJob, curve: list[str], plan: dict[str, Any], rounds: int) -> dict[str, Any]:
    """What a worker reports of a pack that it has trained."""
    given = {"pack": job.pack, "pid": 1, "host": "stand-in", "done": True, "stopped": False, "out_of_memory": False}
    reports = [curve] * len(job.document["members"])
    return {**given, "reports": reports, "rounds_done": rounds, "plan": plan} | dict.fromkeys(
        ("checkpoint", "error", "remark")
    )


class MeasuredSearch(Search):
    """A search that prints a line for every so many trials that have ended.

    Args:
        given: See `Search`.
        service: Process of API and store.
        trials: Trials of the study.
        every: Trials from one line to the next.
        options: See `Search`.
    """

    def __init__(self, *given: Any, service: int, trials: int, every: int, **options: Any) -> None:
        super().__init__(*given, build_sampler=lambda *asked, **more: TimedSampler(build(*asked, **more)), **options)
        self._service = service
        self._last = trials
        self._every = every
        self._before = self._reports = 0

    def begin(self) -> None:
        """Starts the clocks."""
        self._clocks = self._read()
        print("| trials | driver, CPU-ms | API and store, CPU-ms | sampler, CPU-ms | reports/s | driver, MB |")
        print("|---|---|---|---|---|---|")

    def report(self, report: Mapping[str, Any]) -> None:
        """See `Search`."""
        super().report(report)
        self._reports += 1
        ended = len(self.table.trials) - len(self.table.trials.unfinished)
        count = ended - self._before
        if count >= self._every or (count and ended == self._last):
            clocks = self._read()
            wall, driver, stored, asked = (new - old for new, old in zip(clocks, self._clocks, strict=True))
            each = [1000 * used / count for used in (driver - asked, stored, asked)]
            cells = [*(f"{cost:.1f}" for cost in each), f"{self._reports / wall:.0f}", f"{resident_mb():.0f}"]
            print(f"| {ended} | {' | '.join(cells)} |", flush=True)
            self._clocks, self._before, self._reports = clocks, ended, 0

    def _read(self) -> tuple[float, float, float, float]:
        """Seconds, and processor seconds of the driver, the service and the samplers."""
        return time.perf_counter(), time.process_time(), seconds(self._service), TimedSampler.spent


def stand_in(search: MeasuredSearch, rounds: int) -> None:
    """Runs a search whose workers report at once."""
    curve: list[str] = []
    plan: dict[str, Any] = {}
    running: deque[PackJob] = deque()
    while not search.finished:
        while (job := search.next_job()) is not None:
            running.append(job)
        if not running:
            continue
        if not curve:
            curve, plan = trained(running[0])
            search.begin()
        search.report(report(running.popleft(), curve, plan, rounds))


def run(trials: int, workers: int, rounds: int, sampler: str, every: int, ray: bool) -> None:
    """Runs a search."""
    document = study(trials, rounds, sampler, ray)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as folder:
        end, other = context.Pipe()
        service = context.Process(target=serve, args=(folder, other))
        service.start()
        other.close()
        url, token, socket = end.recv()
        client = DriverClient(url, token, socket=socket)
        study_id = client.create(document.to_json(), key="throughput").id
        lease = client.acquire(study_id, holder())
        options = {"folder": folder, "slots": lambda: workers, "service": service.pid, "trials": trials, "every": every}
        search = MeasuredSearch(client, study_id, document, lease.attempt, **options)
        search.load()
        if ray:
            with (
                cluster.private(print, workers) as scratch,
                Watch(
                    client, study_id, lease.attempt, every_s=lease.lease_seconds / 3, stop=threading.Event()
                ) as watch,
            ):
                search.begin()
                fit(search, watch, str(scratch))
        else:
            stand_in(search, rounds)
        client.close()
        end.close()
        service.join()


def main() -> None:
    """Prints the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--every", type=int, default=500, help="trials from one line to the next")
    parser.add_argument("--ray", action="store_true", help="train under Ray Tune")
    parser.add_argument("--profile", action="store_true", help="also print where the main thread's time went")
    asked = parser.parse_args()
    profile = cProfile.Profile(time.thread_time)
    if asked.profile:
        profile.enable()
    run(asked.trials, asked.workers, asked.rounds, asked.sampler, asked.every, asked.ray)
    profile.disable()
    if asked.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(60)


if __name__ == "__main__":
    main()
