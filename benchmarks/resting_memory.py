"""Memory of the API's and the scheduler's processes: started, after work, and idle again; on this machine's loopback.

    OMP_NUM_THREADS=1 python benchmarks/resting_memory.py [--studies 3] [--trials 200] [--rounds 200] [--idle 660]

The two parts of a service run as on Kubernetes, over SQLite and an MLflow server, on which they record finished studies
of random curves. Somebody reads every result and page, and has a study checked. Printed is the proportional set size of
each part with its child processes, as a container's memory is counted, and how long the first reading took.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from api import document
from frontiers import LABELS, fill

from service.cli.ui import end_server
from service.store.store import Store

TOKEN = "benchmark-token-" + "0" * 32
PORTS = {"api": 18080, "scheduler": 18081, "mlflow": 15000}


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(one for file in children for child in file.read_text().split() for one in family(int(child)))]


def mib(pid: int) -> float:
    """Proportional set size of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


def show(when: str, parts: dict[str, int]) -> None:
    """Prints the memory of each part, and of its processes if it has several."""
    cells = []
    for pid in parts.values():
        each = [size for one in family(pid) if (size := mib(one))]
        cells.append(f"{sum(each):.0f}" + (f" ({' + '.join(f'{size:.0f}' for size in each)})" if each[1:] else ""))
    print(f"| {when} | {' | '.join(cells)} |", flush=True)


@contextmanager
def service(folder: Path) -> Iterator[dict[str, int]]:
    """Process ids of the parts of a service over the folder's database."""
    environment = {
        **os.environ,
        "DRIFTLINE_HOME": str(folder),
        "DRIFTLINE_DATABASE_URL": f"sqlite:///{folder / 'driftline.db'}",
        "DRIFTLINE_MLFLOW_URL": f"http://127.0.0.1:{PORTS['mlflow']}",
        "DRIFTLINE_ADMIN_TOKEN": TOKEN,
        "DRIFTLINE_SECRET": TOKEN,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    tracking = ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--default-artifact-root", str(folder)]
    commands = {
        "mlflow": ["mlflow", "server", "--port", str(PORTS["mlflow"]), "--workers", "1", *tracking],
        "api": ["service.cli", "serve", "--port", str(PORTS["api"]), "--only", "api"],
        "scheduler": ["service.cli", "serve", "--port", str(PORTS["scheduler"]), "--only", "scheduler"],
    }
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for part, command in commands.items():
            with (folder / f"{part}.log").open("wb") as log:
                started[part] = subprocess.Popen(
                    [sys.executable, "-m", *command], env=environment, stdout=log, stderr=log, start_new_session=True
                )
            wait_for(f"http://127.0.0.1:{PORTS[part]}/{'health' if part == 'mlflow' else 'readyz'}")
        yield {part: started[part].pid for part in ("api", "scheduler")}
    finally:
        for process in reversed(started.values()):
            end_server(process)


def wait_for(url: str) -> None:
    """Waits for a server to answer."""
    while True:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)


def read(http: httpx.Client, studies: list[str]) -> str:
    """Reads everything about the studies; returns the seconds of the first frontier and of the next one."""
    took = []
    http.post("/sign-in", data={"token": TOKEN})
    for study in studies:
        began = time.perf_counter()
        get(http, f"/v1/studies/{study}/frontier")
        took.append(time.perf_counter() - began)
        get(http, f"/v1/studies/{study}/compare?a={LABELS[0]}&b={LABELS[1]}")
        get(http, f"/studies/{study}")
        get(http, f"/studies/{study}/frontier")
        get(http, f"/v1/studies/{study}/curves")
    return f"frontiers took {', '.join(f'{one:.2f}' for one in took)} s"


def get(http: httpx.Client, path: str) -> Any:
    """Reads one address."""
    return http.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).raise_for_status()


def recorded(database: Path, studies: list[str]) -> None:
    """Waits until the recorder has written all studies."""
    store = Store(database)
    while not all(store.recorder_state.read(study, "ended") for study in studies):
        time.sleep(1)
    store.close()


def main() -> None:
    """Measures a service."""
    parser = argparse.ArgumentParser(description="Memory of the API and the scheduler; loopback only.")
    parser.add_argument("--studies", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--idle", type=float, default=660.0, help="seconds without requests before the last line")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
        store = Store(Path(folder) / "driftline.db")
        studies = [fill(store, arguments.trials, arguments.rounds) for _ in range(arguments.studies)]
        store.close()
        with service(Path(folder)) as parts, httpx.Client(base_url=f"http://127.0.0.1:{PORTS['api']}") as http:
            http.timeout = httpx.Timeout(120)
            print("MiB, each process in brackets\n\n| when | api | scheduler |\n|---|---|---|")
            show("started, recording", parts)
            recorded(Path(folder) / "driftline.db", studies)
            show("recorded", parts)
            seconds = read(http, studies)
            show(f"results read; {seconds}", parts)
            headers = {"Authorization": f"Bearer {TOKEN}"}
            checked = {"json": document("checked", 4), "params": {"validate_only": "true"}, "headers": headers}
            http.post("/v1/studies", **checked).raise_for_status()
            show("a study checked", parts)
            time.sleep(arguments.idle)
            show(f"idle for {arguments.idle:.0f} s", parts)
            seconds = read(http, studies)
            show(f"read again; {seconds}", parts)


if __name__ == "__main__":
    main()
