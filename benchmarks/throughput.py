"""Whether driver, API and store keep up with many workers: whole searches against a stand-in for training.

    OMP_NUM_THREADS=1 python benchmarks/throughput.py [--trials 2000] [--workers 100] [--rounds 50] [--profile]

A driver's search runs as under Ray Tune, in this process, against a real API over loopback and a store in SQLite. The
workers are stand-ins: each hands in the curve of one real trial at once, for every trial of its pack, so that nothing
is measured but the driver (decisions, a random sampler, decoding), the API and the store. Processor time is that of the
process; the wall-clock time says how many reports a second one process can take.
"""

from __future__ import annotations

import argparse
import base64
import cProfile
import pstats
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from driftline.client.driver_client import DriverClient
from driftline.study.spec import Study
from driftline.wire.curve_codec import encode
from driftline.wire.ids import holder
from service.api.app import create_app
from service.api.auth.tokens import Tokens
from service.api.http_server import Server
from service.driver.job import PackJob
from service.driver.ray.worker import columns
from service.driver.search.search import Search
from service.store.store import Store
from trainers import Pack, parse

SPACE = {
    "client_lr": {"float": [1e-3, 1.0], "log": True},
    "server_lr": {"float": [0.1, 10.0], "log": True},
    "local_steps": {"choice": [1, 5, 10]},
}


def study(trials: int, rounds: int) -> Study:
    """A search at random, without confirmation."""
    return Study.from_json(
        {
            "name": "throughput",
            "task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
            "clients_per_round": 10,
            "batch_size": 20,
            "eval_every": 1,
            "methods": [{"label": "fedavg", "name": "fedavg", "space": SPACE}],
            "objective": {"quality": "test_loss", "cost": "rounds"},
            "sampler": "random",
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


def run(trials: int, workers: int, rounds: int) -> tuple[int, float, float]:
    """Runs a search; returns the number of packs, and the seconds and processor seconds it took."""
    document = study(trials, rounds)
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as folder:
        store = Store(Path(folder, "driftline.db"))
        tokens, token = Tokens.random()
        server = Server(create_app(store, tokens))
        client = DriverClient(server.url, token, socket=server.socket)
        study_id = client.create(document.to_json(), key="throughput").id
        attempt = client.acquire(study_id, holder()).attempt
        search = Search(client, study_id, document, attempt, folder=folder, slots=lambda: workers)
        search.load()
        curve: list[str] = []
        plan: dict[str, Any] = {}
        running: deque[PackJob] = deque()
        packs, began, used = 0, 0.0, 0.0
        while not search.finished:
            while (job := search.next_job()) is not None:
                running.append(job)
            if not running:
                continue
            if not curve:
                curve, plan = trained(running[0])
                began, used = time.perf_counter(), time.process_time()
            search.report(report(running.popleft(), curve, plan, rounds))
            packs += 1
        taken = time.perf_counter() - began, time.process_time() - used
        client.close()
        server.close()
        store.close()
        return packs, *taken


def main() -> None:
    """Prints the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--profile", action="store_true", help="also print where the main thread's time went")
    asked = parser.parse_args()
    profile = cProfile.Profile(time.thread_time)
    if asked.profile:
        profile.enable()
    packs, seconds, used = run(asked.trials, asked.workers, asked.rounds)
    profile.disable()
    print(f"{asked.trials} trials in {packs} packs, {asked.workers} workers:")
    each = 1000 * used / asked.trials
    print(f"{each:.2f} CPU-ms a trial, {packs / seconds:.0f} reports/s, {asked.trials / seconds:.0f} trials/s")
    if asked.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(60)


if __name__ == "__main__":
    main()
