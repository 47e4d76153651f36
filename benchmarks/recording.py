"""What it costs to record a large study in MLflow and in files: processor time and memory of the recorder's process.

    OMP_NUM_THREADS=1 python -m benchmarks.recording [--trials 2000] [--rounds 50] [--quadratic] [--folder DIR]

A finished study of random curves is stored in SQLite, a third of its trials on fresh seeds; with `--quadratic` one
without fresh seeds on a task for which the theory predicts every curve. The recorder of an output
folder then writes everything at once; a second one finds everything written. `--folder` keeps the study.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.frontiers import fill
from driftline.results.study_result import FILES
from service.store.store import Store

QUADRATIC = {
    "name": "quadratic",
    "hessians": [[[2, 0], [0, 1]], [[1, 0], [0, 3]], [[4, 0], [0, 1]]],
    "centers": [[1, 0], [0, 1], [-1, 0]],
    "client_weights": [0.25, 0.25, 0.5],
}


def recorded(folder: Path, study_id: str) -> str:
    """Lets a recorder write everything that is missing; returns its costs as cells of a table."""
    command = [sys.executable, "-P", "-W", "ignore", "-m", "service.embedded.recorder_process", str(folder), study_id]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    with process.stdin as lines:
        lines.write("finish\n")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the recorder ended with {process.returncode}")
    spent = usage.ru_utime + usage.ru_stime
    return f"{spent:.1f} | {time.perf_counter() - began:.1f} | {usage.ru_maxrss / 1024:.0f}"


def main() -> None:
    """Prints the costs of the first recorder and of one that finds everything written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--quadratic", action="store_true", help="a task with closed forms, without fresh seeds")
    parser.add_argument("--folder", type=Path, help="keeps the study and its files")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(folder / "driftline.db")
        if not store.studies.find():
            options: dict[str, Any] = {"task": QUADRATIC, "seeds": 0} if asked.quadratic else {}
            fill(store, asked.trials, asked.rounds, **options)
        (study_id,) = (study.id for study in store.studies.find())
        store.close()
        print("| recorder | CPU-s | seconds | most MiB |\n|---|---|---|---|", flush=True)
        for name in ("of a finished study", "of one that is all in MLflow"):
            print(f"| {name} | {recorded(folder, study_id)} |", flush=True)
        sizes = {name: (folder / name).stat().st_size / 1e6 for name in (*FILES, "mlflow.db")}
        print("\n" + ", ".join(f"{name} {size:.1f} MB" for name, size in sizes.items()))


if __name__ == "__main__":
    main()
