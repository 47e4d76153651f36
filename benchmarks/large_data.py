"""Large data: conversion, second start and rounds, of clients in Stack Overflow's shape, generated.

    OMP_NUM_THREADS=1 python benchmarks/large_data.py [--clients 10000] [--sentences 100] [--folder FOLDER]

A client has sentences of 20 words of a vocabulary of 10,000 and tells which of 500 tags a sentence has. Stack Overflow
has 342,477 clients and 135.8 million sentences: --clients 342477 --sentences 397 writes a file of 6.3 GB and a cache of
7.6 GB below the folder. Every start is a process of its own; times are those of the processor, on one thread, from the
first look at the data, with torch loaded. Memory is what a process allocates, RssAnon at its peak; the kernel may drop
mapped files at any time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

WORDS, VOCABULARY, TAGS = 20, 10_000, 500
FEW = 1000  # clients to compare a round with
MODULE = f"""
from torch import nn

def make():
    return nn.Sequential(nn.EmbeddingBag({VOCABULARY}, 8), nn.Linear(8, {TAGS}))
"""


def write(path: Path, clients: int, sentences: int) -> None:
    """The data: written piece by piece."""
    generator = np.random.default_rng(0)
    columns = {"x": ((WORDS,), "<i2"), "y": ((), "<i2"), "client": ((), "<i4")}
    with zipfile.ZipFile(path, "w") as archive:
        for test in ("", "_test"):
            people = clients if not test else min(clients, 100)
            for name, (shape, kind) in columns.items():
                with archive.open(f"{name}{test}.npy", "w", force_zip64=True) as file:
                    header = {"descr": kind, "fortran_order": False, "shape": (people * sentences, *shape)}
                    npy.write_array_header_1_0(file, header)
                    for first in range(0, people, FEW):
                        some = np.repeat(np.arange(first, min(first + FEW, people)), sentences)
                        most = VOCABULARY if name == "x" else TAGS
                        values = some if name == "client" else generator.integers(0, most, (len(some), *shape))
                        file.write(values.astype(kind).tobytes())


class Peak:
    """The most memory that this process has allocated since its start."""

    def __init__(self) -> None:
        self.kib = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            self.kib = max(self.kib, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))
            time.sleep(0.02)


def start(path: str, rounds: int) -> dict[str, float]:
    """One start in this process: processor seconds until the examples are there, until the model is, and of a round."""
    import torch

    from trainers.engine.packs.pack import Pack
    from trainers.tasks import data
    from trainers.trial.document import parse

    torch.set_num_threads(1)
    peak = Peak()
    task = {
        "name": "data",
        "path": path,
        "test": {"inputs": "x_test", "targets": "y_test", "client": "client_test"},
        "classes": TAGS,
        "model": {"module": f"{Path(path).parent / 'tags.py'}:make"},
    }
    began = time.process_time()
    data.build(data.parse(task, "task"), "float32")
    read = time.process_time()
    trial = {
        "task": task,
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 1.0, "local_steps": 10},
        "rounds": rounds + 1,
        "clients_per_round": 50,
        "batch_size": 16,
        "eval_every": 10**6,
    }
    pack = Pack.from_spec(parse(trial), device="cpu")
    ready = time.process_time()
    pack.advance(1)
    warm = time.process_time()
    pack.advance(rounds)
    return {
        "read": read - began,
        "model": ready - read,
        "round": (time.process_time() - warm) / rounds,
        "mib": peak.kib / 1024,
    }


def measured(path: Path, cache: Path, rounds: int) -> dict[str, float]:
    """`start` in a process of its own."""
    command = [sys.executable, __file__, "--start", str(path), "--rounds", str(rounds)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--sentences", type=int, default=100, help="of each client")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="for the data and the cache; default: a temporary one")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.start:
        print(json.dumps(start(given.start, given.rounds)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "tags.py").write_text(MODULE)
        print("| clients | start | data s | model s | round ms | allocated MiB |\n|---|---|---|---|---|---|")
        for clients in (FEW, given.clients):
            path = folder / f"{clients}.npz"
            write(path, clients, given.sentences)
            for which in ("first", "second"):
                row = measured(path, folder / "cache", given.rounds)
                print(
                    f"| {clients} | {which} | {row['read']:.2f} | {row['model']:.2f} | {1000 * row['round']:.1f} "
                    f"| {row['mib']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
