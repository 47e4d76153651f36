"""Trains cells: every piece, a cell on one seed, is kept as a recorded table, so that a stopped command continues."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.diloco.cells import Cell
from driftline.errors import InvalidSpec
from driftline.results.curves import TrialCurve
from driftline.results.recorded_table import read, recorded, recorded_trial, write
from driftline.study.trial_document import trial_document
from trainers import Pack, parse
from trainers.own_files import put

PACK = 5
"""Most configurations that are trained together: a pack holds the models of all their workers."""


@dataclass(frozen=True)
class Piece:
    """A cell on one seed."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.cell.name}-s{self.seed}"

    def table(self, folder: Path) -> Path:
        """The file that exists when it is finished."""
        return folder / f"{self.name}.parquet"

    def clock(self, folder: Path) -> Path:
        """The file with the seconds of a core that it took."""
        return folder / f"{self.name}.json"


def pieces(cells: Iterable[Cell]) -> list[Piece]:
    """All pieces of these cells: part by part, and all cells of a part on one seed before the next seed."""
    found = [Piece(cell, seed) for cell in cells for seed in cell.seeds]
    parts = list(dict.fromkeys((piece.cell.part, piece.cell.width) for piece in found))
    return sorted(found, key=lambda piece: (parts.index((piece.cell.part, piece.cell.width)), piece.seed))


def train(piece: Piece, folder: Path, device: str = "cpu") -> float:
    """Trains a piece and writes its table; returns its seconds of a core."""
    torch.set_num_threads(1)
    began = time.process_time()
    cell = piece.cell
    found: list[TrialCurve] = []
    configurations = cell.configurations()
    for numbers in cell.packs(PACK):
        lines = _lines(cell, [configurations[number] for number in numbers], piece.seed, device)
        for number, own in zip(numbers, lines, strict=True):
            found.append(_trial(cell, number, piece.seed, configurations[number], own))
    seconds = time.process_time() - began
    put(piece.clock(folder), json.dumps({"seconds": seconds}).encode())
    write(recorded(cell.study, found), piece.table(folder))
    return seconds


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


def _trial(
    cell: Cell, number: int, seed: int, configuration: dict[str, Any], lines: Sequence[dict[str, Any]]
) -> TrialCurve:
    metric = cell.study.objective.quality
    columns = {
        name: np.array([np.nan if line.get(name) is None else line[name] for line in lines], dtype=np.float64)
        for name in ("round", metric, "bytes_up", "bytes_down", "client_gradients")
    }
    state = "DIVERGED" if lines[-1]["diverged"] else "COMPLETE"
    return recorded_trial(cell.label, number, seed, configuration, state, columns)


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
            piece = running.pop(done)
            print(f"{piece.name}: {done.result():.0f} s of a core; {len(left) + len(running)} pieces left", flush=True)
            if minutes is None or time.monotonic() - began < 60 * minutes:
                running |= {pool.submit(train, more, folder, device): more for more in _taken(left, 1)}
    if left:
        print(f"stopped after {minutes:g} minutes; the same command continues with the {len(left)} pieces left")


def _taken(left: list[Piece], count: int) -> list[Piece]:
    taken, left[:] = left[:count], left[count:]
    return taken


def trials(piece: Piece, folder: Path) -> tuple[TrialCurve, ...]:
    """The trials of a finished piece.

    Raises:
        InvalidSpec: They were made with another study.
    """
    table = read(piece.table(folder))
    if table.study.fingerprint() != piece.cell.study.fingerprint():
        raise InvalidSpec(str(piece.table(folder)), "must be of the study as it is now: choose another folder")
    return table.trials


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
