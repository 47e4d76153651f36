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
SETTLED_S = 3.0  # after which the checksum of a file is remembered
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


def document(path: str) -> dict[str, Any]:
    """The task."""
    return {
        "name": "data",
        "path": path,
        "test": {"inputs": "x_test", "targets": "y_test", "client": "client_test"},
        "classes": TAGS,
        "model": {"module": f"{Path(path).parent / 'tags.py'}:make"},
    }


def pack(path: str) -> Any:
    """A trial on the data, after its first round."""
    from trainers.engine.packs.pack import Pack
    from trainers.trial.document import parse

    trial = {
        "task": document(path),
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 1.0, "local_steps": 10},
        "rounds": 10**4,
        "clients_per_round": 50,
        "batch_size": 16,
        "eval_every": 10**6,
    }
    result = Pack.from_spec(parse(trial), device="cpu")
    result.advance(1)
    return result


def start(path: str) -> dict[str, float]:
    """One start in this process: processor seconds until the examples are there, and until the first round is over."""
    import torch

    from trainers.tasks import data

    torch.set_num_threads(1)
    peak = Peak()
    began = time.process_time()
    data.build(data.parse(document(path), "task"), "float32")
    read = time.process_time()
    pack(path)
    return {"read": read - began, "round": time.process_time() - read, "mib": peak.kib / 1024}


def compare(paths: list[str], repeats: int) -> dict[str, float]:
    """Rounds on the second data to those on the first, which take turns in this process: quartiles of the ratio."""
    import torch

    torch.set_num_threads(1)
    packs = [pack(path) for path in paths]
    ratios = []
    for _ in range(repeats):
        seconds = []
        for one in packs:
            began = time.process_time()
            one.advance(2)
            seconds.append(time.process_time() - began)
        ratios.append(seconds[1] / seconds[0])
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
    return {"low": low, "middle": middle, "high": high}


def measured(folder: Path, *arguments: str) -> dict[str, float]:
    """What a process of its own answers."""
    command = [sys.executable, __file__, *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--sentences", type=int, default=100, help="of each client")
    parser.add_argument("--repeats", type=int, default=15, help="of the comparison of rounds")
    parser.add_argument("--folder", type=Path, help="for the data and the cache; default: a temporary one")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    parser.add_argument("--compare", nargs=2, help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.start or given.compare:
        print(json.dumps(start(given.start) if given.start else compare(given.compare, given.repeats)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        (folder / "tags.py").write_text(MODULE)
        print(
            "| clients | start | data, CPU-s | model and first round, CPU-s | allocated, MiB |\n|---|---|---|---|---|"
        )
        paths = {clients: str(folder / f"{clients}.npz") for clients in (FEW, given.clients)}
        for clients, path in paths.items():
            write(Path(path), clients, given.sentences)
            time.sleep(SETTLED_S)
            for which in ("first", "second"):
                row = measured(folder, "--start", path)
                cells = f"{row['read']:.2f} | {row['round']:.2f} | {row['mib']:.0f}"
                print(f"| {clients:,} | {which} | {cells} |", flush=True)
        ratio = measured(folder, "--repeats", str(given.repeats), "--compare", *paths.values())
        print(f"\nround, of {given.clients:,} clients to {FEW:,}: {ratio['middle']:.3f}", end=" ")
        print(f"(quartiles {ratio['low']:.3f} to {ratio['high']:.3f})")


if __name__ == "__main__":
    main()
