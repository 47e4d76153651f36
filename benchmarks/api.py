"""What the API costs under load: 100 clients on a store of 10,000 trials, on this machine's loopback alone.

    OMP_NUM_THREADS=1 python benchmarks/api.py [--seconds 20] [--soak 60] [--clients 100] [--trials 10000]

The server is a process of its own over SQLite; the clients share another one. Each client asks once a second, as a
program that follows a study does, so 100 clients send 100 requests a second. Times are from sending to the whole
answer, at the client, its own work included: `healthz`, which does nothing, is the floor that the others are to be
read against. The server's own processor time for each request stands beside them: other programs on the machine change
it least. Everything is bounded, in time and in number, and removes its files.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from driftline.study.spec import Study
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Report, TrialResult
from driftline.wire.records import Values
from service.api.app import ApiOptions, create_app
from service.api.auth.tokens import Access, Tokens
from service.api.event_streams import StreamPace
from service.api.http_server import Server
from service.api.rate_limits import Limits
from service.store.store import Store

STUDIES, ROUNDS, PACK = 10, 50, 50
LABELS = ("fedavg", "fedprox")
SPACE = {"client_lr": {"float": [1e-3, 1.0], "log": True}, "server_lr": {"float": [1e-2, 10.0], "log": True}}
Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def document(name: str, trials: int) -> dict[str, Any]:
    """A study of two methods on the two-client quadratic."""
    entry = {"space": {**SPACE, "local_steps": {"choice": [1, 2, 5]}}}
    return {
        "name": name,
        "task": {"name": "quadratic", "problem": "two_clients"},
        "methods": [{"label": "fedavg", "name": "fedavg", **entry}, {"label": "fedprox", "name": "fedavg", **entry}],
        "objective": {"quality": "loss"},
        "budget": {"trials_per_method": trials, "rounds": ROUNDS, "seeds": 0},
        "sampler": "quasi_random",
    }


def fill(store: Store, trials: int) -> list[str]:
    """Stores ten finished studies with `trials` trials in total; returns their ids."""
    draw = random.Random(0)
    each = trials // STUDIES // len(LABELS)
    ids = []
    for number in range(STUDIES):
        study = Study.from_json(document(f"study-{number}", each))
        study_id = store.studies.create(study.to_json(), study.fingerprint()).id
        attempt = store.leases.acquire(study_id, "benchmark/0").attempt
        for label in LABELS:
            for first in range(0, each, PACK):
                new = [_new(label, each_, draw) for each_ in range(first, min(first + PACK, each))]
                _pack(store, study_id, attempt, f"{label}.{first}", new, draw)
        store.leases.release(study_id, attempt, "SUCCEEDED")
        ids.append(study_id)
    return ids


def _new(label: str, number: int, draw: random.Random) -> NewTrial:
    setting = {"client_lr": 10 ** draw.uniform(-3, 0), "server_lr": 10 ** draw.uniform(-2, 1), "local_steps": 5}
    facts = {"number": number, "configuration": number, "hyperparameters": setting}
    return NewTrial(label=label, phase="search", seed=0, **facts)


def _pack(store: Store, study_id: str, attempt: int, pack: str, new: list[NewTrial], draw: random.Random) -> None:
    """Trains nothing: stores curves that fall at random rates to random ends."""
    trials = [trial.id for trial in store.trials.create(study_id, attempt, new)]
    store.trials.start_pack(study_id, attempt, pack, trials)
    reports = {}
    for trial in trials:
        rate, end = draw.uniform(0.7, 0.99), draw.uniform(0, 1)
        columns = {
            "round": list(range(ROUNDS + 1)),
            "loss": [end + 3 * rate**round_ for round_ in range(ROUNDS + 1)],
            "bytes_up": [float(1600 * round_) for round_ in range(ROUNDS + 1)],
            "client_gradients": [float(10 * round_) for round_ in range(ROUNDS + 1)],
        }
        reports[trial] = encode(columns)
    store.curves.report(study_id, Report(attempt=attempt, pack=pack, reports=reports, rounds_done=ROUNDS))
    values = Values(quality=1.0, speed=1.0)
    store.trials.finish(
        study_id, attempt, [TrialResult(trial=trial, state="COMPLETE", values=values) for trial in trials]
    )


def serve(folder: Path) -> None:
    """The server: says its address, and ends with its standard input."""
    limits = Limits(requests_per_second=None)
    app = create_app(
        Store(folder / "driftline.db"),
        Tokens({"benchmark": Access()}),
        ApiOptions(limits=limits, pace=StreamPace(poll_s=0.05)),
    )
    with Server(app, loopback=True) as server:
        gc.collect()
        gc.freeze()  # as `driftline serve` does after its start
        print(server.url, flush=True)
        sys.stdin.read()


async def load(url: str, ask: Ask, clients: int, seconds: float) -> list[float]:
    """Seconds that each answer took; every client asks once a second."""
    took: list[float] = []
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    headers = {"Authorization": "Bearer benchmark"}
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60) as http:
        end = time.perf_counter() + seconds

        async def client(number: int) -> None:
            await asyncio.sleep(number / clients)
            due = time.perf_counter()
            while due < end:
                began = time.perf_counter()
                (await ask(http)).raise_for_status()
                took.append(time.perf_counter() - began)
                due += 1.0
                await asyncio.sleep(max(0.0, due - time.perf_counter()))

        await asyncio.gather(*(client(number) for number in range(clients)))
    return took


def row(name: str, took: list[float], floor: float, cpu_s: float) -> float:
    """Prints one line; gives its 95th percentile in milliseconds."""
    cuts = statistics.quantiles(took, n=20)
    middle, high = 1000 * cuts[9], 1000 * cuts[18]
    ratio, cpu = high / (floor or high), 1000 * cpu_s / len(took)
    print(f"| {name} | {len(took)} | {middle:.1f} | {high:.1f} | {ratio:.1f} | {cpu:.2f} |", flush=True)
    return high


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm(url: str, ids: list[str], study: dict[str, Any]) -> None:
    """The first reading of each study computes its results, and the first creation loads what checks studies."""
    began = time.perf_counter()
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer benchmark"}, timeout=120) as http:
        for study_id in ids:
            http.get(f"/v1/studies/{study_id}/frontier").raise_for_status()
        cold = (time.perf_counter() - began) / len(ids)
        http.post("/v1/studies", json=study).raise_for_status()
    print(f"the first reading of a study's frontier took {cold:.2f} s", flush=True)


async def one_key(url: str, count: int, clients: int) -> int:
    """Number of studies that `count` parallel requests with one idempotency key create."""
    gate = asyncio.Semaphore(clients)
    headers = {"Authorization": "Bearer benchmark", "Idempotency-Key": "one"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as http:

        async def create() -> str:
            async with gate:
                answer = await http.post("/v1/studies", json=document("once", 4))
                answer.raise_for_status()
                return str(answer.json()["id"])

        return len(set(await asyncio.gather(*(create() for _ in range(count)))))


def cut_stream(url: str, store: Store, cuts: int) -> tuple[list[int], list[int]]:
    """Ids of a study's events as they are stored, and as a reader sees them that is cut off so often."""
    study = Study.from_json(document("followed", 4))
    study_id = store.studies.create(study.to_json(), study.fingerprint()).id

    def write() -> None:
        for number in range(3 * cuts):
            store.events.log(study_id, "info", f"line {number}")
            time.sleep(0.01)
        store.studies.intend(study_id, "cancel")

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    ended = False
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer benchmark"}, timeout=30) as http:
        for number in range(cuts + 1):
            last = {"Last-Event-ID": str(seen[-1])} if seen else {}
            with http.stream("GET", f"/v1/studies/{study_id}/events", headers=last) as answer:
                for line in answer.iter_lines():
                    if line.startswith("id: "):
                        seen.append(int(line[4:]))
                        if number < cuts:
                            break
                    ended |= line == "event: end"
    writer.join()
    assert ended, "the stream must say that it has ended"
    return [event.id for event in store.events.read(study_id)], seen


async def soak(url: str, asks: list[Ask], clients: int, seconds: float, pid: int) -> list[float]:
    """Megabytes that the server holds, once a second, under mixed requests."""
    held: list[float] = []
    draw = random.Random(1)

    async def watch() -> None:
        for _ in range(int(seconds)):
            text = Path(f"/proc/{pid}/status").read_text()
            held.append(int(text.split("VmRSS:")[1].split()[0]) / 1024)
            await asyncio.sleep(1)

    await asyncio.gather(watch(), load(url, lambda http: draw.choice(asks)(http), clients, seconds))
    return held


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Fills a store, starts the server, and prints everything."""
    store = Store(folder / "driftline.db")
    began = time.perf_counter()
    ids = fill(store, arguments.trials)
    print(f"{arguments.trials} trials in {STUDIES} studies stored in {time.perf_counter() - began:.0f} s", flush=True)
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        draw = random.Random(2)
        number = itertools.count()
        typed = {"Content-Type": "application/json"}

        def create(http: httpx.AsyncClient) -> Awaitable[httpx.Response]:
            """Each a study of its own, so that nothing that is kept can help."""
            body = json.dumps(document(f"created-{next(number)}", 4))
            return http.post("/v1/studies", content=body, headers=typed)

        asks: dict[str, Ask] = {
            "healthz": lambda http: http.get("/healthz"),
            "study": lambda http: http.get(f"/v1/studies/{draw.choice(ids)}"),
            "frontier": lambda http: http.get(f"/v1/studies/{draw.choice(ids)}/frontier"),
            "create": create,
        }
        warm(url, ids, document("warm", 4))
        print(
            "| request | answers | median, ms | p95, ms | p95 / healthz | server, CPU-ms |\n|---|---|---|---|---|---|"
        )
        asyncio.run(load(url, asks["healthz"], arguments.clients, 2.0))  # the client's own first steps do not count
        floor = 0.0
        for name, ask in asks.items():
            before = cpu_seconds(server.pid)
            took = asyncio.run(load(url, ask, arguments.clients, arguments.seconds))
            high = row(name, took, floor, cpu_seconds(server.pid) - before)
            floor = floor or high
        made = asyncio.run(one_key(url, arguments.creates, arguments.clients))
        print(f"{arguments.creates} parallel creates under one key made {made} study")
        stored, seen = cut_stream(url, store, arguments.cuts)
        same = "the same" if seen == stored else "not the same"
        print(f"a reader cut off {arguments.cuts} times saw {len(seen)} events, {len(stored)} are stored: {same}")
        held = asyncio.run(
            soak(url, [asks["study"], asks["frontier"], asks["healthz"]], arguments.clients, arguments.soak, server.pid)
        )
        marks = [*range(0, len(held), 60), len(held) - 1]
        shown = ", ".join(f"{held[second]:.0f} MB after {second} s" for second in marks)
        print(f"mixed reading: the server held {shown}")
    finally:
        server.communicate(timeout=30)
        store.close()


def main() -> None:
    """Measures, or serves for a measurement."""
    parser = argparse.ArgumentParser(description="What the API costs under load; loopback only.")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each kind of request")
    parser.add_argument("--soak", type=float, default=60.0, help="seconds of mixed reading")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--creates", type=int, default=1000, help="parallel creates under one key")
    parser.add_argument("--cuts", type=int, default=100, help="times that a reader of events is cut off")
    parser.add_argument("--serve", type=Path, help="serve this folder; used by the benchmark itself")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
        measure(Path(folder), arguments)


if __name__ == "__main__":
    main()
