"""What the first reading of a large study costs, and what others notice of it; on this machine's loopback alone.

    OMP_NUM_THREADS=1 python benchmarks/frontiers.py [--sizes 10000x200 1000x1500] [--readers 10]

A finished study of random curves, a third of its trials on fresh seeds, is stored in SQLite and read for the first
time: in this process, for the processor time of each part, and from a server by several clients at once, while another
one asks `healthz` every 10 ms. Everything is bounded and removes its files.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from driftline.results.study_result import document_columns, study_result
from driftline.study.spec import Study
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Outcome, Report, TrialResult
from driftline.wire.records import Values
from service.api.response_cache import Body
from service.store.store import Store

LABELS, PACK, SEEDS = ("fedavg", "fedprox"), 100, 3
HEADERS = {"Authorization": "Bearer benchmark"}
SPACE = {"client_lr": {"float": [1e-3, 1.0], "log": True}, "server_lr": 1.0, "local_steps": 5}


def fill(
    store: Store,
    trials: int,
    rounds: int,
    searched: int | None = None,
    *,
    seeds: int = SEEDS,
    task: Mapping[str, Any] | None = None,
) -> str:
    """Stores a finished study with `trials` trials of six metrics; returns its id.

    Args:
        store: An empty store.
        trials: How many; a third of them on fresh seeds, if there are any.
        rounds: Rounds of each trial.
        searched: Rounds after which the trials of the search were stopped; None trains all of them to the end.
        seeds: Fresh seeds of each confirmed configuration.
        task: The task; digits by default.
    """
    methods = [{"label": label, "name": "fedavg", "space": SPACE} for label in LABELS]
    each = trials // len(LABELS)
    front = each // (3 * seeds) if seeds else 0
    budget = {"trials_per_method": each - front * seeds, "rounds": rounds, "seeds": seeds}
    budget |= {"confirm": front} if seeds else {}
    document = {"name": "large", "task": task or {"name": "digits"}, "methods": methods, "budget": budget}
    study = Study.from_json({**document, "objective": {"quality": "test_loss"}, "sampler": "quasi_random"})
    study_id = store.studies.create(study.to_json(), study.fingerprint()).id
    attempt = store.leases.acquire(study_id, "benchmark/0").attempt
    draw, noise = random.Random(0), np.random.default_rng(0)
    for label in LABELS:
        settings = [{"client_lr": 10 ** draw.uniform(-3, 0)} for _ in range(each - front * seeds)]
        new = [
            NewTrial(label=label, phase="search", number=number, seed=0, configuration=number, hyperparameters=setting)
            for number, setting in enumerate(settings)
        ]
        for number in range(front * seeds):
            of, seed = divmod(number, seeds)
            of_front = {"number": number, "seed": 1 + seed, "configuration": of, "hyperparameters": settings[of]}
            new.append(NewTrial(label=label, phase="confirmation", **of_front))
        for first in range(0, len(new), PACK):
            ids = [trial.id for trial in store.trials.create(study_id, attempt, new[first : first + PACK])]
            pack = f"{label}.{first}"
            store.trials.start_pack(study_id, attempt, pack, ids)
            stopped = searched is not None and new[first].phase == "search"
            done = searched if stopped and searched is not None else rounds
            reports = {trial: encode(curve(done, draw, noise)) for trial in ids}
            store.curves.report(study_id, Report(attempt=attempt, pack=pack, reports=reports, rounds_done=done))
            values = None if stopped else Values(quality=1.0, speed=1.0)
            state: Outcome = "STOPPED" if stopped else "COMPLETE"
            ends = [TrialResult(trial=trial, state=state, values=values) for trial in ids]
            store.trials.finish(study_id, attempt, ends)
    store.leases.release(study_id, attempt, "SUCCEEDED")
    return study_id


def curve(rounds: int, draw: random.Random, noise: np.random.Generator) -> dict[str, list[Any]]:
    """Losses that fall at a random rate to a random end, with noise, and counters."""
    done = np.arange(rounds + 1)
    loss = draw.uniform(0, 1) + 3 * draw.uniform(0.95, 0.999) ** done + 0.02 * noise.standard_normal(rounds + 1)
    return {
        "round": done.tolist(),
        "train_loss": np.float32(loss + 0.1).astype(float).tolist(),
        "test_loss": np.float32(loss).astype(float).tolist(),
        "update_norm": np.float32(noise.lognormal(size=rounds + 1)).astype(float).tolist(),
        "bytes_up": (1600.0 * done).tolist(),
        "bytes_down": (1600.0 * done).tolist(),
        "client_gradients": (10.0 * done).tolist(),
    }


def alone(store: Store, study_id: str) -> None:
    """Prints the processor time of each part of a first reading, in this process."""
    gc.collect()
    gc.freeze()  # as `driftline serve` does after its start
    marks = [time.process_time()]

    def took() -> float:
        marks.append(time.process_time())
        return marks[-1] - marks[-2]

    study, trials = store.studies.get(study_id), store.trials.find(study_id)
    shown = [f"trials {took():.2f}"]
    curves = store.curves.arrays(study_id, document_columns(study.study.objective.quality))
    shown.append(f"curves {took():.2f}")
    document = study_result(study, trials, curves).document
    shown.append(f"results {took():.2f}")
    body = Body.of(document)
    shown.append(f"JSON {took():.2f}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = marks[-1] - marks[0]
    print(f"first reading, CPU-s: {', '.join(shown)}, in all {total:.2f}; {len(body.raw) / 1e6:.1f} MB of JSON")
    print(f"the process, which has filled the store as well, held {most:.0f} MB at most", flush=True)


def served(http: httpx.Client, study_id: str, readers: int) -> None:
    """Prints how long requests about the study take, and `healthz` meanwhile."""
    path = f"/v1/studies/{study_id}"
    for name, what, count in (
        ("first reading of the frontier", "/frontier", readers),
        ("the frontier again", "/frontier", readers),
        ("compare", f"/compare?a={LABELS[0]}&b={LABELS[1]}", 1),
        ("a page of curves", "/curves", 1),
        ("a page of 1000 trials", "/trials?page_size=1000", 1),
    ):
        took, healthz = together(http, path + what, count)
        high = sorted(healthz)[int(0.95 * len(healthz))]
        ends = f"{min(took):.2f} to {max(took):.2f}" if count > 1 else f"{took[0]:.2f}"
        print(f"| {name} | {count} | {ends} | {1000 * high:.0f} | {1000 * max(healthz):.0f} |", flush=True)


def get(http: httpx.Client, path: str) -> float:
    """Seconds that an answer takes."""
    began = time.perf_counter()
    http.get(path).raise_for_status()
    return time.perf_counter() - began


def together(http: httpx.Client, path: str, count: int) -> tuple[list[float], list[float]]:
    """Times of `count` simultaneous requests, and of `healthz` every 10 ms until they are answered."""
    took: list[float] = []
    threads = [threading.Thread(target=lambda: took.append(get(http, path))) for _ in range(count)]
    for thread in threads:
        thread.start()
    probed = [get(http, "/healthz")]
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.01)
        probed.append(get(http, "/healthz"))
    return took, probed


def main() -> None:
    """Measures every size."""
    parser = argparse.ArgumentParser(description="What the first reading of a large study costs; loopback only.")
    parser.add_argument("--sizes", nargs="+", default=["10000x200", "1000x1500"], help="TRIALSxROUNDS")
    parser.add_argument("--readers", type=int, default=10, help="clients that ask for the frontier at once")
    arguments = parser.parse_args()
    server_file = Path(__file__).with_name("api.py")
    for size in arguments.sizes:
        trials, rounds = map(int, size.split("x"))
        with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
            store = Store(Path(folder) / "driftline.db")
            study_id = fill(store, trials, rounds)
            print(f"\n{trials} trials of {rounds} rounds", flush=True)
            alone(store, study_id)
            store.close()
            command = [sys.executable, str(server_file), "--serve", folder]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            try:
                url = server.stdout.readline().strip()
                print("| request | clients | seconds | healthz p95, ms | largest, ms |\n|---|---|---|---|---|")
                with httpx.Client(base_url=url, headers=HEADERS, timeout=300) as http:
                    get(http, "/healthz")
                    served(http, study_id, arguments.readers)
            finally:
                server.communicate(timeout=30)


if __name__ == "__main__":
    main()
