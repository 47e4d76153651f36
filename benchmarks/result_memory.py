"""Memory of the API while somebody reads the frontier and the page of large studies; on this machine's loopback.

    OMP_NUM_THREADS=1 python benchmarks/result_memory.py [--trials 10000] [--rounds 3000] [--searched 300]

A finished study of random curves is stored in SQLite: a third of its trials on fresh seeds with all rounds, the others
stopped by the search. An API alone serves it. Printed is the proportional set size of the API with its child processes,
as a container's memory is counted: the most during each request, and what is left a minute later. The databases of two
studies are kept in `--folder`, so that a second measurement needs no minutes to fill them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
from frontiers import fill
from resting_memory import PORTS, TOKEN, family, mib, wait_for

from service.cli.ui import end_server
from service.store.store import Store

EVERY_S = 0.2
IDLE_S = 60.0


class Watch:
    """The memory of processes, looked at again and again.

    Attributes:
        most: The most MiB so far, and the parts of it.
    """

    def __init__(self, pid: int) -> None:
        self.most: tuple[float, list[float]] = (0.0, [])
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            self.most = max(self.most, now(self._pid))


def now(pid: int) -> tuple[float, list[float]]:
    """The present MiB of a process and its children, and of each."""
    each = [size for one in family(pid) if (size := mib(one))]
    return sum(each), each


def shown(size: tuple[float, list[float]]) -> str:
    """A size with its parts."""
    return f"{size[0]:.0f} ({' + '.join(f'{one:.0f}' for one in size[1])})"


def read(http: httpx.Client, paths: Sequence[str]) -> list[str]:
    """Reads addresses at once; returns status and size of each answer, or what was said."""
    answers: list[str] = []

    def get(path: str) -> None:
        began = time.perf_counter()
        answer = http.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        said = f"{len(answer.content) / 1e6:.1f} MB" if answer.is_success else answer.text[:300]
        answers.append(f"{answer.status_code} after {time.perf_counter() - began:.1f} s, {said}")

    threads = [threading.Thread(target=get, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def measure(folder: Path, studies: Sequence[str]) -> None:
    """Prints the memory of an API during each kind of request."""
    environment = {
        **os.environ,
        "DRIFTLINE_HOME": str(folder),
        "DRIFTLINE_DATABASE_URL": f"sqlite:///{folder / 'driftline.db'}",
        "DRIFTLINE_ADMIN_TOKEN": TOKEN,
        "DRIFTLINE_SECRET": TOKEN,
    }
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(PORTS["api"]), "--only", "api"]
    url = f"http://127.0.0.1:{PORTS['api']}"
    with (folder / "api.log").open("wb") as log:
        api = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(f"{url}/readyz")
        print(f"started: {shown(now(api.pid))} MiB\n| request | most MiB | answers |\n|---|---|---|", flush=True)
        with httpx.Client(base_url=url, timeout=900) as http:
            http.post("/sign-in", data={"token": TOKEN})
            requests = {
                "the frontier of a study": [f"/v1/studies/{studies[0]}/frontier"],
                "the pages of two studies": [f"/studies/{study}/frontier" for study in studies],
            }
            for name, paths in requests.items():
                with Watch(api.pid) as watch:
                    answers = read(http, paths)
                print(f"| {name} | {shown(watch.most)} | {'; '.join(answers)} |", flush=True)
        time.sleep(IDLE_S)
        print(f"| {IDLE_S:.0f} s later | {shown(now(api.pid))} | |", flush=True)
    finally:
        end_server(api)


def main() -> None:
    """Fills a database if there is none, and measures."""
    parser = argparse.ArgumentParser(description="Memory of the API while it reads large studies; loopback only.")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--searched", type=int, default=300, help="rounds of the trials that the search stopped")
    parser.add_argument("--folder", type=Path, help="keeps the database")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(folder / "driftline.db")
        while len(store.studies.find()) < 2:
            fill(store, arguments.trials, arguments.rounds, arguments.searched)
        studies = [study.id for study in store.studies.find()]
        store.close()
        measure(folder, studies)


if __name__ == "__main__":
    main()
