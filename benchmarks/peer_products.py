"""What a study costs as a whole, in Driftline and with the usual tools, in processor time and by the clock.

    OMP_NUM_THREADS=1 python -m benchmarks.peer_products [--repeats 5] [--only driftline,bare]

The study is that of benchmarks/whole_product.py: softmax regression on digits among 50 clients, FedAvg, 50 rounds, 10
clients a round, evaluated every round, random search over both rates and the number of local steps. Beside
`driftline run`: Ray Tune with OptunaSearch, its trials functions or reused actors; Optuna alone, and a bare loop, both
in two processes. These train with a careful loop in plain PyTorch (benchmarks/peers/trial_task.py), record no curves
and nothing in MLflow; cohorts and batches are read from a file, not drawn. Each is a script that runs in an environment
of its own (benchmarks/peer_processes.py) from a cold start, to its end.

The loops must train what Driftline trains: trials of a peer are trained again by Driftline with the same
hyperparameters, cohorts and batches, and the test losses must agree in the median. Compared are trials with server_lr /
client_lr below 100: the loop divides by client_lr, which amplifies the rounding of single precision by that quotient.
Large rates amplify it, too.

In each repeat, everything runs once with few and once with more trials. Their difference gives the cost of a further
trial, and both the cost of the start; from these comes a peer's cost of a study of any size, since the trials of a
random search cost the same. Driftline's studies have the sizes that are compared, so that nothing is computed for it.
Processor time is that of all processes (see benchmarks/whole_product.py). The same is then done with seconds by the
clock, where everything runs two trials at a time. A bar is judged at the largest size, by the lower end of the interval
(benchmarks/peer_rounds.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine import machine
from benchmarks.peer_processes import FOLDER, SCRIPTS, environment
from benchmarks.peer_rounds import draws, interval
from benchmarks.whole_product import SPACE, TASKS, Run, adopt, measured, study, watched
from trainers import Pack, parse
from trainers.problem import Examples
from trainers.tasks import digits

ROUNDS, SIZES = 50, (128, 512)  # sizes of the studies that are compared
TRIALS = {  # name: (script, arguments, numbers of trials)
    "driftline": ("", (), SIZES),
    "bare loop": ("trials_bare", (), (8, 24)),
    "Optuna": ("trials_optuna", (), (8, 24)),
    "Ray Tune with reused actors": ("trials_ray_tune", ("reused",), (8, 24)),
    "Ray Tune with functions": ("trials_ray_tune", (), (1, 3)),
}
BARS = {"Optuna": 8, "Ray Tune with reused actors": 12}
CHECKED, TOLERANCE = 6, 1e-4  # trials whose losses are compared; median relative difference of the losses
AMPLIFIED = 100  # largest server_lr / client_lr of these trials


@dataclass(frozen=True)
class Cost:
    """Seconds of a study, linear in its trials: of all processors, or by the clock."""

    start: float
    trial: float

    @staticmethod
    def between(few: tuple[int, float], more: tuple[int, float]) -> Cost:
        """The cost from two studies, each (trials, seconds)."""
        trial = (more[1] - few[1]) / (more[0] - few[0])
        return Cost(few[1] - few[0] * trial, trial)

    def of(self, trials: int) -> float:
        """Seconds of a study."""
        return self.start + trials * self.trial


def write_task(folder: Path) -> None:
    """Writes trial_task.npz."""
    problem = digits.build(digits.parse(TASKS["digits"]["task"], "task"), "float32")
    train, test = problem.train, problem.test
    assert isinstance(train, Examples)
    assert isinstance(test, Examples)
    np.savez(
        folder / "trial_task.npz",
        inputs=train.inputs.reshape(len(train.inputs), -1),
        targets=train.targets,
        test_inputs=test.inputs.reshape(len(test.inputs), -1),
        test_targets=test.targets,
        rows=draws(train.offsets, train.sizes, ROUNDS, max(SPACE["local_steps"]["choice"])),
    )


def check(trials: Sequence[dict[str, Any]]) -> float:
    """The median relative difference between the peer's test losses and Driftline's.

    Raises:
        SystemExit: It exceeds the tolerance.
    """
    apart = []
    for trial in [trial for trial in trials if trial["server_lr"] < AMPLIFIED * trial["client_lr"]][:CHECKED]:
        document = {
            **TASKS["digits"],
            "method": {"name": "fedavg", **{name: trial[name] for name in SPACE}},
            "clients_per_round": 10,
            "batch_size": 20,
            "rounds": ROUNDS,
        }
        loss = Pack.from_spec(parse(document), device="cpu").advance()[-1]["test_loss"]
        apart.append(abs(trial["test_loss"] - loss) / loss)
    if not statistics.median(apart) <= TOLERANCE:
        raise SystemExit(f"losses differ from Driftline's by {apart}: {trials}")
    return statistics.median(apart)


def run(name: str, trials: int, environments: Path, folder: Path) -> tuple[Run, list[dict[str, Any]]]:
    """Runs a study; returns its run and, of a peer, its trials."""
    script, arguments, _ = TRIALS[name]
    if not script:
        return measured(study("digits", trials, ROUNDS)), []
    with tempfile.TemporaryDirectory(dir=folder) as out:
        file = Path(out, "trials.json")
        python = environment(environments, "ray_tune")
        found = watched([python, SCRIPTS / f"{script}.py", folder, file, str(trials), *arguments])
        return found, json.loads(file.read_text())


def table(costs: Mapping[str, Sequence[Cost]], start: str, trial: str, apart: Mapping[str, float]) -> None:
    """Prints medians, and ratios to Driftline.

    Args:
        costs: of each tool, one a repeat.
        start: heading of the start's seconds.
        trial: heading of a trial's milliseconds.
        apart: how far losses are from Driftline's.
    """
    sizes = " | ".join(f"{size} trials" for size in SIZES)
    print(f"| study | {start} | {trial} | {sizes} | bar | losses apart |")
    print("|---" * (len(SIZES) + 5) + "|")
    for name, found in costs.items():
        cells = [name, f"{statistics.median(cost.start for cost in found):.1f}"]
        cells.append(f"{1000 * statistics.median(cost.trial for cost in found):.0f}")
        for size in SIZES:
            ratios = [one.of(size) / own.of(size) for one, own in zip(found, costs["driftline"], strict=True)]
            middle, low, high = interval(ratios)
            cells.append(f"**{middle:.1f}** ({low:.1f} to {high:.1f})")
        bar = BARS.get(name)
        cells.append("" if bar is None else f"{bar}: {'met' if low >= bar else 'missed'}")
        print("|", " | ".join([*cells, f"{apart[name]:.0e}"]), "|")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default=",".join(TRIALS), help="names, with commas between them")
    parser.add_argument("--environments", type=Path, default=FOLDER, help="folder for the peers' environments")
    given = parser.parse_args()
    adopt()
    names = [name for name in TRIALS if name == "driftline" or name in given.only.split(",")]
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    clocks: dict[str, list[Cost]] = {name: [] for name in names}
    apart = dict.fromkeys(names, 0.0)
    loads = []
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as folder:
        write_task(Path(folder))
        for _ in range(given.repeats):
            for name in names:
                points, moments = [], []
                for trials in TRIALS[name][2]:
                    found, tried = run(name, trials, given.environments, Path(folder))
                    points.append((trials, found.cpu["all"]))
                    moments.append((trials, found.marks["exit"]))
                    if tried:
                        apart[name] = max(apart[name], check(tried))
                    loads.append(found.load)
                costs[name].append(Cost.between(*points))
                clocks[name].append(Cost.between(*moments))
                print(f"{name}: {costs[name][-1]}; by the clock {clocks[name][-1]}", file=sys.stderr, flush=True)
    print(f"{machine()}; load {min(loads):.0f} to {max(loads):.0f}\n")
    table(costs, "start, CPU-s", "a trial, CPU-ms", apart)
    print()
    table(clocks, "start, s", "a trial, ms", apart)
    size = SIZES[-1]
    rates = {name: statistics.median(60 * size / clock.of(size) for clock in found) for name, found in clocks.items()}
    print(f"\ntrials a minute, of {size}:", ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))


if __name__ == "__main__":
    main()
