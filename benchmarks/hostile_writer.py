"""What one hostile writer costs the others: p95 of ordinary requests with and without one, side by side in one run.

    OMP_NUM_THREADS=1 python benchmarks/hostile_writer.py [--seconds 30] [--turns 10] [--writers 44]

The server is a process of its own over SQLite, with its default limits and with checks in processes, as `driftline
serve` has them. Another process asks `whoami`, `list`, `frontier` of a small study and `healthz` for one project, one
after the other. In every second turn a third process, with a token to write for another project, sends as fast as it
is answered, on many connections and all `validate_only`: methods with names of 1 MB, studies of 200 entries, of 4,900
choices and of 30,000 starting points (0.8 MB). Quiet and hostile turns alternate, so that what else the machine does
falls on both; a quiet turn begins when the server has no work left. The ratio of the two p95s is the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from api import cpu_seconds, document, fill

from service.api.app import ApiOptions, create_app
from service.api.auth.tokens import Access, Tokens
from service.api.check_process import check_processes
from service.api.http_server import Server
from service.store.store import Store
from trainers.data.folder import data_dir

ORDINARY, HOSTILE = "ordinary", "hostile"
PACE_S = 0.02
"""Between two ordinary requests."""


def serve(folder: Path) -> None:
    """The server: says its address, and ends with its standard input."""
    tokens = {
        ORDINARY: Access(project="default"),
        HOSTILE: Access(project="hostile", scopes=frozenset({"read", "write"})),
    }
    options = ApiOptions(check=check_processes((data_dir(),)))  # as `serve` does
    app = create_app(Store(folder / "driftline.db"), Tokens(tokens), options)
    with Server(app, loopback=True) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def heavy() -> dict[str, bytes]:
    """Documents that are legal, or nearly, and cost the most."""
    entry = {"name": "fedavg", "space": "default"}
    rates = {"client_lr": {"float": [0.001, 1.0]}, "server_lr": 1.0}
    quadratic = document("heavy", 4)
    starts = [{"client_lr": 0.001 + number * 1e-6} for number in range(1000)]
    large = {
        "name": {"methods": [{"label": "a", "name": "fedavg" * 170_000, "space": {}}]},
        "entries": {"methods": [{**entry, "label": f"a{number}"} for number in range(200)]},
        "choices": {
            "methods": [
                {"name": "fedavg", "space": {**rates, "local_steps": {"choice": list(range(1, 4_900))}}},
            ]
        },
        "starts": {
            "methods": [
                {"name": "fedavg", "label": f"a{number}", "space": {**rates, "local_steps": 1}, "start": starts}
                for number in range(30)
            ],
            "budget": {**quadratic["budget"], "trials_per_method": 1000},
        },
    }
    return {name: json.dumps({**quadratic, **change}).encode() for name, change in large.items()}


async def attack(url: str, writers: int, seconds: float) -> Counter[str]:
    """Sends large documents over `writers` connections, each after the answer to the one before; counts the answers."""
    bodies = heavy()
    counts: Counter[str] = Counter()
    headers = {"Authorization": f"Bearer {HOSTILE}", "Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=writers)
    end = time.perf_counter() + seconds
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=120) as http:

        async def writer(number: int) -> None:
            names = list(bodies)
            while time.perf_counter() < end:
                name = names[number % len(names)]
                number += 1
                try:
                    answer = await http.post("/v1/studies", content=bodies[name], params={"validate_only": "true"})
                    counts[f"{name} {answer.status_code}"] += 1
                    if answer.status_code == 429:
                        await asyncio.sleep(0.05)  # a hostile one does not wait as long as it was told
                except httpx.TransportError as error:
                    counts[f"{name} {type(error).__name__}"] += 1

        await asyncio.gather(*(writer(number) for number in range(writers)))
    return counts


async def ordinary(url: str, study: str, seconds: float) -> dict[str, list[float]]:
    """Asks one thing after the other; the seconds that each answer took."""
    asks = {
        "whoami": "/v1/whoami",
        "list": "/v1/studies",
        "frontier": f"/v1/studies/{study}/frontier",
        "healthz": "/healthz",
    }
    took: dict[str, list[float]] = {name: [] for name in asks}
    end = time.perf_counter() + seconds
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {ORDINARY}"}, timeout=60) as http:
        while time.perf_counter() < end:
            for name, path in asks.items():
                began = time.perf_counter()
                (await http.get(path)).raise_for_status()
                took[name].append(time.perf_counter() - began)
                await asyncio.sleep(PACE_S)
    return took


def until_idle(pid: int) -> None:
    """Waits until the server does nothing any more."""
    while True:
        before = cpu_seconds(pid)
        time.sleep(0.5)
        if cpu_seconds(pid) - before < 0.05:
            return


def p95(took: list[float]) -> float:
    """In milliseconds."""
    return 1000 * statistics.quantiles(took, n=20)[18]


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Fills a store, starts the server, and prints everything."""
    store = Store(folder / "driftline.db")
    study = fill(store, 200)[-1]
    store.close()
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    took: dict[bool, dict[str, list[float]]] = {False: {}, True: {}}
    sent: Counter[str] = Counter()
    url = server.stdout.readline().strip()
    each = arguments.seconds / arguments.turns
    options = ["--attack", url, "--seconds", str(each), "--writers", str(arguments.writers)]
    attacker = subprocess.Popen(
        [sys.executable, __file__, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    try:
        headers = {"Authorization": f"Bearer {HOSTILE}"}
        with httpx.Client(base_url=url, headers=headers, timeout=120) as http:  # loads what checks studies
            http.post("/v1/studies", json=document("warm", 4), params={"validate_only": "true"}).raise_for_status()
        asyncio.run(ordinary(url, study, 2.0))
        for turn in range(2 * arguments.turns):
            hostile = bool(turn % 2)
            if hostile:
                attacker.stdin.write("go\n")
                attacker.stdin.flush()
            for name, seconds in asyncio.run(ordinary(url, study, each)).items():
                took[hostile].setdefault(name, []).extend(seconds)
            if hostile:
                sent.update(json.loads(attacker.stdout.readline()))
                until_idle(server.pid)
        status = Path(f"/proc/{server.pid}/status").read_text()
    finally:
        attacker.communicate(timeout=120)
        server.communicate(timeout=60)
    print("| request | answers | quiet p95, ms | hostile p95, ms | ratio | quiet median, ms | hostile median, ms |")
    print("|---|---|---|---|---|---|---|")
    for name in took[False]:
        quiet, loud = took[False][name], took[True][name]
        high, low = p95(loud), p95(quiet)
        medians = f"{1000 * statistics.median(quiet):.1f} | {1000 * statistics.median(loud):.1f}"
        print(f"| {name} | {len(quiet)}, {len(loud)} | {low:.1f} | {high:.1f} | {high / low:.1f} | {medians} |")
    print(f"the hostile writer was answered: {dict(sorted(sent.items()))}")
    print(f"the server held {int(status.split('VmHWM:')[1].split()[0]) / 1024:.0f} MB at most")


def main() -> None:
    """Measures, or serves or attacks for a measurement."""
    parser = argparse.ArgumentParser(description="What one hostile writer costs the others; loopback only.")
    parser.add_argument("--seconds", type=float, default=30.0, help="with the hostile writer; as many without")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--writers", type=int, default=44, help="connections of the hostile writer")
    parser.add_argument("--serve", type=Path, help="serve this folder; used by the benchmark itself")
    parser.add_argument("--attack", help="attack this address; used by the benchmark itself")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
    elif arguments.attack is not None:
        for _ in sys.stdin:  # a line is a turn
            counts = asyncio.run(attack(arguments.attack, arguments.writers, arguments.seconds))
            print(json.dumps(counts), flush=True)
    else:
        with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
            measure(Path(folder), arguments)


if __name__ == "__main__":
    main()
