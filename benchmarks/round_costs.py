"""What a round of FedAvg costs a trial, by the width of its pack and by the size of its cohort, as a picture.

    OMP_NUM_THREADS=1 python -m benchmarks.round_costs [--repeats 5] [--out benchmarks/round-costs.png]

The task of benchmarks/engine.py, whose cohorts have 10 clients. The trials of a pack differ in their client rates.
Times are processor milliseconds of one trial: medians of the repeats, in which all packs take turns, with their
extremes. Widths are left out where a pack would need minutes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.engine import CASES, Case, data, document, machine
from benchmarks.plain_loops import CLIENT_LR, COHORT
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

WIDTHS = {"softmax": (1, 2, 4, 8, 16, 32), "mlp": (1, 2, 4, 8, 16, 32), "cnn": (1, 2, 4, 8)}
COHORTS = {"softmax": (1, 3, 10, 30, 100), "mlp": (1, 3, 10, 30, 100), "cnn": (1, 3, 10, 30)}
MODELS: dict[str, Case] = {case.model: case for case in CASES if case.trials == 1}
Point = tuple[str, int, int]
"""Model, trials, clients of a round."""


def pack(point: Point, path: Path) -> Pack:
    """The trials of a point, after their first round."""
    model, trials, clients = point
    rates: list[dict[str, Any]] = [{"client_lr": CLIENT_LR * (1 + number / 100)} for number in range(trials)]
    spec = {**document(MODELS[model], path), "clients_per_round": clients, "members": rates}
    made = Pack.from_spec(parse(spec), device="cpu")
    made.advance(1)
    return made


def measure(path: Path, repeats: int) -> dict[Point, list[float]]:
    """CPU-ms of a round of one trial, one number a repeat."""
    points = [(model, trials, COHORT) for model, widths in WIDTHS.items() for trials in widths]
    points += [(model, 1, clients) for model, cohorts in COHORTS.items() for clients in cohorts if clients != COHORT]
    packs = {point: pack(point, path) for point in points}
    times: dict[Point, list[float]] = {point: [] for point in points}
    for _ in range(repeats):
        for point, made in packs.items():
            _, trials, clients = point
            rounds = max(1, MODELS[point[0]].rounds * COHORT // (trials * clients))
            start = time.process_time()
            made.advance(rounds)
            times[point].append(1e3 * (time.process_time() - start) / rounds / trials)
    return times


def draw(times: Mapping[Point, list[float]], path: Path) -> None:
    """Draws both costs, the one against the cohort a client's."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for model in MODELS:
        for axes, place, chosen in (
            (left, 1, [point for point in times if point[0] == model and point[2] == COHORT]),
            (right, 2, sorted(point for point in times if point[0] == model and point[1] == 1)),
        ):
            shares = [1 if axes is left else point[2] for point in chosen]
            middle, low, high = (
                [function(times[point]) / share for point, share in zip(chosen, shares, strict=True)]
                for function in (statistics.median, min, max)
            )
            at = [point[place] for point in chosen]
            (line,) = axes.plot(at, middle, marker="o", label=model)
            axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    left.set(xlabel="trials in the pack", ylabel="CPU-ms a round, per trial", title=f"cohorts of {COHORT} clients")
    right.set(xlabel="clients of a round", ylabel="CPU-ms a round, per client", title="a trial alone")
    for axes, ticks in ((left, WIDTHS["softmax"]), (right, COHORTS["softmax"])):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    left.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Prints the medians and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/round-costs.png"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="driftline-bench-") as folder:
        times = measure(data(Path(folder))[0], given.repeats)
    print(f"{machine()}\n\n| model | trials | clients of a round | CPU-ms a round, per trial |\n|---|---|---|---|")
    for (model, trials, clients), values in times.items():
        spread = f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
        print(f"| {model} | {trials} | {clients} | {spread} |")
    draw(times, given.out)


if __name__ == "__main__":
    main()
