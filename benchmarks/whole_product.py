"""Where the time of `driftline run` goes: from the command to its exit, by phase and by process.

    OMP_NUM_THREADS=1 python -m benchmarks.whole_product [--trials 128,512] [--repeats 3] [--task digits] [--rounds 50]

Each run is a cold start: a new process, an empty output folder, no Ray. It trains trials of one label, softmax
regression with FedAvg, chosen at random. The phases come from the study's database and its files. Processor time is
that of the command and of everything that it started, read twenty times a second, so that the last moments of each
process are missing. Times depend on the machine's other programs, processor time less, so both stand beside the load
average. Then follow how long the training took, and what was around it: the time before and after. The last line gives
what a further trial costs each kind of process, from the smallest and the largest study.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processor_time import descendants, seconds

TASKS: dict[str, dict[str, Any]] = {
    "digits": {
        "task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
        "eval_every": 1,
        "weighting": "uniform",  # as the loops that peer_products.py runs beside it
    },
    "mnist_by_writer": {"task": {"name": "mnist_by_writer"}},
}
SPACE = {
    "client_lr": {"float": [1e-3, 1.0], "log": True},
    "server_lr": {"float": [0.1, 10.0], "log": True},
    "local_steps": {"choice": [1, 5, 10]},
}
PHASES = (
    "first pack starts",
    "training begins",
    "first pack ends",
    "last pack ends",
    "study ends",
    "files",
    "MLflow",
    "exit",
)
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_KINDS = (  # part of a command line, kind of process
    ("gcs_server", "Ray's daemons"),
    ("raylet/raylet", "Ray's daemons"),
    ("/dashboard/", "Ray's daemons"),
    ("runtime_env/agent", "Ray's daemons"),
    ("log_monitor", "Ray's daemons"),
    ("recorder_process", "recorder"),
    ("ray::DashboardAgent", "Ray's daemons"),
    ("ray::RuntimeEnvAgent", "Ray's daemons"),
    ("monitor.py", "Ray's daemons"),
    ("ray::", "workers"),
    ("default_worker", "workers"),
    ("service.cli", "driver, API, store"),
)


@dataclass
class Run:
    """One run.

    Attributes:
        marks: When each phase was over, in seconds from the command.
        cpu: Processor seconds by kind of process.
        load: The load average of a minute when it began.
    """

    marks: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    load: float = 0.0

    def training(self) -> float:
        """Seconds from the first round of the first pack to the end of the last one."""
        return self.marks["last pack ends"] - self.marks["training begins"]

    def around(self) -> float:
        """Seconds before and after."""
        return self.marks["exit"] - self.training()


def study(name: str, trials: int, rounds: int) -> dict[str, Any]:
    """The study of a run."""
    return {
        "name": f"whole-product-{trials}",
        **TASKS[name],
        "clients_per_round": 10,
        "batch_size": 20,
        "methods": [{"label": "fedavg", "name": "fedavg", "space": SPACE}],
        "objective": {"quality": "test_loss", "cost": "rounds"},
        "sampler": "random",
        "budget": {"trials_per_method": trials, "rounds": rounds, "seeds": 0},
    }


def measured(document: Mapping[str, Any]) -> Run:
    """Runs a study from a cold start, and takes its times."""
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as folder:
        file, out = Path(folder, "study.yaml"), Path(folder, "out")
        file.write_text(json.dumps(document), encoding="utf-8")
        began = time.time()
        run = watched([sys.executable, "-m", "service.cli", "run", str(file), "--out", str(out)])
        run.marks |= {name: when - began for name, when in _stored(out).items()}
        return run


def watched(command: Sequence[str | Path]) -> Run:
    """Runs a command; its only mark is "exit". Processes that it leaves behind must become children of this one.

    Raises:
        SystemExit: The command failed; has its output.
    """
    run = Run(load=os.getloadavg()[0])
    began = time.time()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        seen: dict[int, tuple[str, float]] = {}
        try:
            while process.poll() is None:
                _sample(seen)
                time.sleep(0.05)
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
            raise
        run.marks["exit"] = time.time() - began
        if process.returncode:
            output.seek(0)
            raise SystemExit(output.read())
    _reap()
    by_kind: dict[str, float] = defaultdict(float)
    for kind, used in seen.values():
        by_kind[kind] += used
    run.cpu = {**by_kind, "all": sum(by_kind.values())}
    return run


def adopt() -> None:
    """Makes this process the parent of what its descendants leave behind."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _stored(out: Path) -> dict[str, float]:
    """The moments that the database and the files tell."""
    with sqlite3.connect(out / "driftline.db") as database:
        started, first_end, last_end = database.execute(
            "select min(started_at), min(ended_at), max(ended_at) from packs"
        ).fetchone()
        (finished,) = database.execute("select finished_at from studies").fetchone()
        ends = dict(database.execute("select pack, ended_at from packs").fetchall())
        packs = dict(database.execute("select id, pack from trials").fetchall())
    with (out / "trials.csv").open(encoding="utf-8", newline="") as file:  # `wall_seconds` are those of the pack
        begins = min(ends[packs[row["trial"]]] - float(row["wall_seconds"]) for row in csv.DictReader(file))
    return {
        "first pack starts": started,
        "training begins": begins,
        "first pack ends": first_end,
        "last pack ends": last_end,
        "study ends": finished,
        "files": (out / "trials.csv").stat().st_mtime,
        "MLflow": (out / "mlflow.db").stat().st_mtime,
    }


def _sample(seen: dict[int, tuple[str, float]]) -> None:
    """Notes the processor time of every descendant."""
    for process in descendants(os.getpid()):
        kind, before = seen.get(process, ("", 0.0))
        used = max(before, seconds(process))
        seen[process] = (kind if before > 0.5 else _kind(process), used)


def _kind(pid: int) -> str:
    try:
        line = Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "other"
    return next((kind for part, kind in _KINDS if part in line), "other")


def _reap() -> None:
    """Waits for what the command has left behind, which has become a child of this process."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def middle(values: Sequence[float]) -> str:
    """The median with its extremes."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", default="128,512", help="numbers of trials, with commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--task", choices=sorted(TASKS), default="digits")
    asked = parser.parse_args()
    adopt()
    sizes = sorted(int(number) for number in asked.trials.split(","))
    runs: dict[int, list[Run]] = {size: [] for size in sizes}
    for _ in range(asked.repeats):
        for size in sizes:
            run = measured(study(asked.task, size, asked.rounds))
            runs[size].append(run)
            print(
                f"{size} trials: {run.marks['exit']:.1f} s, {run.cpu['all']:.1f} CPU-s, load {run.load:.1f}",
                file=sys.stderr,
            )
    print(f"| seconds from the command | {' | '.join(f'{size} trials' for size in sizes)} |")
    print("|---" * (len(sizes) + 1) + "|")
    for phase in PHASES:
        cells = [middle([run.marks[phase] for run in runs[size]]) for size in sizes]
        print(f"| {phase} | {' | '.join(cells)} |")
    for what, taken in (("of training", Run.training), ("around it", Run.around)):
        print(f"| {what} | {' | '.join(middle([taken(run) for run in runs[size]]) for size in sizes)} |")
    print()
    kinds = sorted(
        {kind for size in sizes for run in runs[size] for kind in run.cpu}, key=lambda kind: (kind == "all", kind)
    )
    print(f"| CPU-s of | {' | '.join(f'{size} trials' for size in sizes)} |")
    print("|---" * (len(sizes) + 1) + "|")
    for kind in kinds:
        cells = [middle([run.cpu.get(kind, 0.0) for run in runs[size]]) for size in sizes]
        print(f"| {kind} | {' | '.join(cells)} |")
    if len(sizes) > 1:
        print("\nCPU-ms of a further trial:", end=" ")
        first, last = sizes[0], sizes[-1]
        for kind in kinds:
            ends = [statistics.median(run.cpu.get(kind, 0.0) for run in runs[size]) for size in (first, last)]
            print(f"{kind} {1000 * (ends[1] - ends[0]) / (last - first):.1f}", end="; ")
        print()


if __name__ == "__main__":
    main()
