"""What open event streams cost others: `whoami` with and without 400 streams, side by side in one run.

    OMP_NUM_THREADS=1 python benchmarks/streams.py [--streams 400] [--tokens 25] [--studies 8] [--seconds 10]

The server is a process of its own over SQLite, on this machine's loopback alone. Nothing happens to the studies: the
streams only wait. Measured are phases without streams, with them, and without them again; the ratio is of medians.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from api import cpu_seconds, document

from driftline.study.spec import Study
from service.api.app import create_app
from service.api.auth.tokens import Access, Tokens
from service.api.http_server import Server
from service.store.store import Store


def serve(folder: Path, tokens: int) -> None:
    """The server: says its address, and ends with its standard input."""
    known = {f"benchmark-{number}": Access() for number in range(tokens)}
    with Server(create_app(Store(folder / "driftline.db"), Tokens(known)), loopback=True) as server:
        print(server.url, flush=True)
        sys.stdin.read()


async def phase(name: str, url: str, pid: int, seconds: float) -> float:
    """Asks `whoami` ten times a second, prints how long it took, and gives the median in seconds."""
    took: list[float] = []
    headers = {"Authorization": "Bearer benchmark-0"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        cpu, began = cpu_seconds(pid), time.perf_counter()
        while (start := time.perf_counter()) - began < seconds:
            (await http.get("/v1/whoami")).raise_for_status()
            took.append(time.perf_counter() - start)
            await asyncio.sleep(0.1)
        share = (cpu_seconds(pid) - cpu) / (time.perf_counter() - began)
    cuts = statistics.quantiles(took, n=20)
    print(f"| {name} | {1000 * cuts[9]:.1f} | {1000 * cuts[18]:.1f} | {100 * share:.0f} % |", flush=True)
    return cuts[9]


async def follow(url: str, study: str, token: str, ready: asyncio.Semaphore) -> None:
    """One stream; says when its first event has come."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET /v1/studies/{study}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    try:
        while not (line := await reader.readline()).startswith(b"data:"):
            assert line, "the stream must not end"
        ready.release()
        while await reader.readline():
            pass
    finally:
        writer.close()


async def measure(url: str, ids: list[str], pid: int, arguments: argparse.Namespace) -> None:
    """The three phases."""
    print("| streams | median, ms | p95, ms | server's CPU |\n|---|---|---|---|")
    before = await phase("0", url, pid, arguments.seconds)
    ready = asyncio.Semaphore(0)
    streams = [
        asyncio.create_task(follow(url, ids[n % len(ids)], f"benchmark-{n % arguments.tokens}", ready))
        for n in range(arguments.streams)
    ]
    for _ in streams:
        await ready.acquire()
    during = await phase(str(arguments.streams), url, pid, arguments.seconds)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    after = await phase("0", url, pid, arguments.seconds)
    print(f"with streams, whoami takes {2 * during / (before + after):.1f} times as long")


def main() -> None:
    """Measures, or serves for a measurement."""
    parser = argparse.ArgumentParser(description="What open event streams cost others; loopback only.")
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=25, help="over which they are spread")
    parser.add_argument("--studies", type=int, default=8, help="over which they are spread")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each phase")
    parser.add_argument("--serve", type=Path, help="serve this folder; used by the benchmark itself")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve, arguments.tokens)
        return
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
        store = Store(Path(folder) / "driftline.db")
        studies = [Study.from_json(document(f"study-{number}", 4)) for number in range(arguments.studies)]
        ids = [store.studies.create(study.to_json(), study.fingerprint()).id for study in studies]
        command = [sys.executable, __file__, "--serve", folder, "--tokens", str(arguments.tokens)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            asyncio.run(measure(server.stdout.readline().strip(), ids, server.pid, arguments))
        finally:
            server.communicate(timeout=30)
            store.close()


if __name__ == "__main__":
    main()
