"""Trains cells: the numbers of every piece, a cell on one seed, are a file, so that a stopped command continues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.diloco.cells import Cell
from benchmarks.diloco.finished import Finished, Piece, digest, version
from driftline.study.trial_document import trial_document
from trainers import Pack, parse
from trainers.own_files import put

PACK = 5
"""Most configurations that are trained together: a pack holds the models of all their workers."""


def train(piece: Piece, folder: Path, device: str = "cpu") -> Finished:
    """Trains a piece and writes its numbers."""
    torch.set_num_threads(1)
    began = time.process_time()
    cell, commit = piece.cell, version()
    metric, configurations = cell.study.objective.quality, cell.configurations()
    untrained = 0.0
    ends: list[tuple[int, float | None]] = [(0, None)] * len(configurations)
    for numbers in cell.packs(PACK):
        lines = _lines(cell, [configurations[number] for number in numbers], piece.seed, device)
        untrained = lines[0][0][metric]
        for number, own in zip(numbers, lines, strict=True):
            ends[number] = (own[-1]["round"], None if own[-1]["diverged"] else own[-1][metric])
    seconds = time.process_time() - began
    done = Finished(piece.name, digest(cell), commit, seconds, untrained, tuple(ends))
    put(piece.file(folder), done.to_json().encode())
    return done


def _lines(cell: Cell, configurations: Sequence[dict[str, Any]], seed: int, device: str) -> list[list[dict[str, Any]]]:
    """The evaluated and last lines of each configuration."""
    document = trial_document(cell.study, cell.label, configurations, seed)
    pack = Pack.from_spec(parse(document), device=device)
    found: list[list[dict[str, Any]]] = [[] for _ in configurations]
    metric = cell.study.objective.quality
    while not pack.done:
        for line in pack.advance(seconds=5.0):
            if line["diverged"] or line.get(metric) is not None:
                found[line["member"]].append(line)
    return found


def run(
    missing: Sequence[Piece], folder: Path, *, processes: int, minutes: float | None = None, device: str = "cpu"
) -> None:
    """Trains pieces in their order, several at once; begins none after `minutes`."""
    began = time.monotonic()
    left = list(missing)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(train, piece, folder, device): piece for piece in _taken(left, processes)}
        while running:
            done = next(as_completed(running))
            piece, seconds = running.pop(done), done.result().seconds
            print(f"{piece.name}: {seconds:.0f} s of a core; {len(left) + len(running)} pieces left", flush=True)
            if minutes is None or time.monotonic() - began < 60 * minutes:
                running |= {pool.submit(train, more, folder, device): more for more in _taken(left, 1)}
    if left:
        print(f"stopped after {minutes:g} minutes; the same command continues with the {len(left)} pieces left")


def _taken(left: list[Piece], count: int) -> list[Piece]:
    taken, left[:] = left[:count], left[count:]
    return taken


def timed(cell: Cell) -> float:
    """Seconds of a core that all pieces of a cell take, from one configuration of each structure and a round or two."""
    torch.set_num_threads(1)
    configurations, total = cell.configurations(), 0.0
    for numbers in cell.packs(len(configurations)):
        spec = parse(trial_document(cell.study, cell.label, [configurations[numbers[0]]], cell.seeds[0]))
        pack = Pack.from_spec(spec, device="cpu")
        began = time.process_time()
        pack.advance(1)  # also evaluates the untrained model
        trained = time.process_time()
        rounds = max(1, 10 // configurations[numbers[0]]["local_steps"])
        pack.advance(rounds)
        each = (time.process_time() - trained) / rounds
        total += (trained - began + each * spec.rounds) * len(numbers) * len(cell.seeds)
    return total
