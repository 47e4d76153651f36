"""What a round of FedAvg costs in Driftline's engine and in other simulators, in processor time.

    OMP_NUM_THREADS=1 python -m benchmarks.peer_rounds [--repeats 9] [--only softmax] [--peers pfl,flower]

The task of benchmarks/engine.py with real images: 100 writers of MNIST with 100 images each (62 outputs, of which ten
occur), 10 clients a round, batches of 20, one epoch (5 steps), single precision, one thread. Every simulator runs in an
environment and a process of its own (benchmarks/peer_processes.py), trains from the same model, and is given the
cohorts and batches that Driftline draws: after the first rounds each must have Driftline's model up to rounding, or the
benchmark stops.

All processes live at once and take turns. A turn's time is the processor time of the process and of all below it: of
Flower, the actors and Ray's daemons count. Driftline runs as in a study, reporting losses and counting bytes; a pack's
row is per trial. A ratio is the median over the repeats of peer / Driftline in the same repeat. Its interval, from
order statistics, has at least 95 % from 6 repeats on. A bar is met if the interval's lower end meets it.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.engine import machine
from benchmarks.peer_processes import FOLDER, PACKAGES, SCRIPTS, Ask, asked, environment
from benchmarks.processor_time import tree_seconds
from trainers.data.images import MNIST
from trainers.data.partitions import Rows
from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.errors import MissingDataError
from trainers.trial.document import parse

CLIENTS, EXAMPLES, COHORT, BATCH, STEPS, CLASSES, RATE = 100, 100, 10, 20, 5, 62, 0.05
ROUNDS = {"softmax": 20, "mlp": 10, "cnn": 2}  # of a turn
PACK = 8  # trials, each with a client rate of its own
CHECKED = 3  # rounds until the models are compared
TOLERANCE = 1e-3  # of the distance that the model has moved
BARS = {
    ("softmax", "pfl"): 5, ("softmax", "flower"): 35, ("mlp", "pfl"): 2, ("mlp", "flower"): 12,
    ("cnn", "pfl"): 1.7, ("cnn", "flower"): 2.6,
}  # fmt: skip
PEERS = ("flower", "fedlab", "pfl", "fedjax")
Arrays = list[NDArray[np.float32]]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the order statistics that hold the true one with 95 %; the extremes if there are too few values."""
    ordered, count = sorted(values), len(values)
    outside, tail = 0, 1  # values outside at either end, and in how many of 2^count cases the median lies beyond them
    while 2 * (tail + math.comb(count, outside + 1)) <= 0.05 * 2**count:
        outside += 1
        tail += math.comb(count, outside)
    return statistics.median(ordered), ordered[outside], ordered[-1 - outside]


def write_task(folder: Path, rounds: int) -> None:
    """Writes the data and the draws of the first rounds."""
    labels, writers = MNIST.labels(), MNIST.writers()
    train = np.arange(MNIST.train)
    names, counts = np.unique(writers[train], return_counts=True)
    chosen = names[counts >= EXAMPLES][:CLIENTS]
    rows = np.concatenate([train[writers[train] == writer][:EXAMPLES] for writer in chosen])
    rows = np.append(rows, MNIST.train)  # one image for testing, which nobody does here
    client = np.minimum(np.arange(len(rows)) // EXAMPLES, CLIENTS - 1)
    test = np.arange(len(rows)) >= CLIENTS * EXAMPLES
    inputs, targets = MNIST.scaled(rows, "float32"), labels[rows].astype(np.int64)
    np.savez(folder / "task.npz", x=inputs, y=targets, client=client, test=test)
    offsets = EXAMPLES * np.arange(CLIENTS)
    rows = draws(offsets, np.full(CLIENTS, EXAMPLES), rounds, STEPS)
    np.savez(folder / "draws.npz", rows=rows.reshape(rounds, COHORT, -1))


def draws(offsets: Rows, sizes: Rows, rounds: int, steps: int) -> Rows:
    """The rows of examples that Driftline draws with seed 0, for the clients of each round's cohort in ascending order.

    Returns:
        (rounds, M, steps, batch).
    """
    cohorts = np.stack([randomness.cohort(0, number, len(sizes), COHORT) for number in range(rounds)])
    drawn = [
        randomness.shuffled(randomness.key(0, number, randomness.Purpose.SHUFFLE), cohort, sizes[cohort], steps, BATCH)
        + offsets[cohort][:, None, None]
        for number, cohort in enumerate(cohorts)
    ]
    return np.stack(drawn)


def driftline_pack(folder: Path, model: str, trials: int = 1) -> Pack:
    """Driftline's training of the task."""
    torch.set_num_threads(1)
    document = {
        "task": {"name": "npz", "path": str(folder / "task.npz"), "test": "test", "model": model, "classes": CLASSES},
        "method": {"name": "fedavg", "client_lr": RATE, "server_lr": RATE, "local_steps": STEPS},
        "clients_per_round": COHORT,
        "batch_size": BATCH,
        "batching": "shuffled",
        "rounds": 10**6,
        "eval_every": 10**6,
        "members": [{"client_lr": RATE * (1 + number / 100)} for number in range(trials)],
    }
    return Pack.from_spec(parse(document), device="cpu")


def parameters(pack: Pack) -> Arrays:
    """The first trial's model as a usual module of torch has it: images are flattened channels first."""
    found: Arrays = []
    channels = None
    for parameter in pack.torch_modules()[0].parameters():
        held = parameter.detach().numpy()
        if held.ndim == 4:
            channels = held.shape[0]
        elif held.ndim == 2 and channels is not None:  # the dense layer after the convolutions
            side = math.isqrt(held.shape[1] // channels)
            held = held.reshape(-1, side, side, channels).transpose(0, 3, 1, 2).reshape(held.shape)
            channels = None
        found.append(np.ascontiguousarray(held))
    return found


def apart(first: Arrays, one: Arrays, other: Arrays) -> float:
    """The distance of two models, relative to how far the first of them has moved."""
    start, here, there = (np.concatenate([held.ravel() for held in arrays]) for arrays in (first, one, other))
    return float(np.linalg.norm(here - there) / np.linalg.norm(here - start))


def load(path: Path) -> Arrays:
    with np.load(path) as file:
        return list(file.values())


@dataclass(frozen=True)
class Running:
    """A simulator at work.

    Attributes:
        ask: Asks its process.
        process: The number of the process.
        trials: Width of its pack; 1 for peers.
        rounds: Done in a turn.
    """

    ask: Ask
    process: int
    trials: int
    rounds: int

    def turn(self) -> float:
        """CPU-ms of a round of one trial."""
        before = tree_seconds(self.process)
        self.ask("rounds", self.rounds)
        return 1e3 * (tree_seconds(self.process) - before) / self.rounds / self.trials


def compare(model: str, peers: Sequence[str], repeats: int, environments: Path, folder: Path) -> None:
    """Prints a line for Driftline and each peer."""
    first = parameters(driftline_pack(folder, model))
    np.savez(folder / f"{model}.npz", *first)
    with ExitStack() as stack:
        running: dict[str, Running] = {}
        models: dict[str, Arrays] = {}
        contestants = {"driftline": ("driftline", 1), f"driftline, pack of {PACK}": ("driftline", PACK)}
        for name, (peer, trials) in {**contestants, **{peer: (peer, 1) for peer in peers}}.items():
            python = Path(sys.executable) if peer == "driftline" else environment(environments, peer)
            ask, process = stack.enter_context(asked(python, SCRIPTS / f"fedavg_{peer}.py"))
            ask("begin", str(folder), model, *([trials] if trials > 1 else []))
            ask("rounds", CHECKED)
            ask("parameters", str(folder / f"{name}.npz"))
            models[name] = load(folder / f"{name}.npz")
            running[name] = Running(ask, process, trials, max(1, ROUNDS[model] // trials))
        distances = {name: apart(first, models["driftline"], models[name]) for name in running}
        wrong = {name: distance for name, distance in distances.items() if not distance <= TOLERANCE}
        if wrong:
            raise SystemExit(f"{model}: other models than Driftline's: {wrong}")
        load_before = os.getloadavg()[0]
        times: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(repeats):
            for name, one in running.items():
                times[name].append(one.turn())
    for name, values in times.items():
        ratios = [there / here for here, there in zip(times["driftline"], values, strict=True)]
        middle, low, high = interval(ratios)
        bar = BARS.get((model, name))
        verdict = "" if bar is None else f"{bar}: {'met' if low >= bar else 'missed'}"
        cells = [
            model,
            name,
            f"{statistics.median(values):.1f}",
            f"**{middle:.2f}** ({low:.2f} to {high:.2f})",
            verdict,
        ]
        print("|", " | ".join([*cells, f"{distances[name]:.0e}", f"{load_before:.1f}"]), "|", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=ROUNDS, help="one model")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, with commas between them")
    parser.add_argument("--environments", type=Path, default=FOLDER, help="folder for the peers' environments")
    given = parser.parse_args()
    names = given.peers.split(",")
    print(f"{machine()}; {'; '.join(' '.join(PACKAGES[name]) for name in names)}\n")
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as folder:
        try:
            write_task(Path(folder), CHECKED + given.repeats * max(ROUNDS.values()))
        except MissingDataError as error:
            print(f"skipped {', '.join(ROUNDS)} on MNIST by writer: {error}")
            return
        print("| model | simulator | CPU-ms a round | to Driftline | bar | models apart | load |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for model in ROUNDS:
            if given.only in (None, model):
                compare(model, names, given.repeats, given.environments, Path(folder))


if __name__ == "__main__":
    main()
