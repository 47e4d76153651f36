"""How many client gradients a search needs for what full-length TPE finds: rungs, and the schedulers of other tuners.

    OMP_NUM_THREADS=1 python -m benchmarks.search --tables --real --peers FOLDER --seeds 10

TPE whose trials all train to the end, and the same with rungs by halving and by extrapolation. With --peers, Ray Tune's
ASHA with OptunaSearch and Syne Tune's MOASHA search the same. Each gets an environment below FOLDER and runs as a
process that is asked over a pipe (benchmarks/peer_processes.py). Neither a cluster nor a backend is started: 8
simulated workers train one rung after the other, in turn, and the peers' own schedulers and searchers propose
configurations and stop trials, at the same rungs.

--tables replays studies of one label from the recorded tables (all, or those named): 64 trials, of which 8 are
confirmed on 6 fresh seeds. A proposal is moved to the nearest row of the table that the search has not tried.

--real trains small studies on label-skewed digits and on mnist_by_writer, without Ray, in this process: 24 trials of 36
rounds, of which 4 are confirmed on 3 fresh seeds. A peer's trial is trained to its end and read as far as the peer let
it go: a curve does not depend on when it was stopped.

All are judged by the area of the confirmed, cross-fitted frontier on the table's fixed scale, after every eighth of the
trials. The share is that of full-length TPE's client gradients with which the mean area over seeds first reaches the
mean area of full-length TPE; its 95 % interval is from 2000 bootstrap samples of the seeds.

Priors from theory and from earlier studies are measured by `benchmarks/priors.py`, branching by
`benchmarks/branching.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.early_stopping import TABLES, scaled
from benchmarks.peer_processes import SCRIPTS, Ask, asked, environment
from benchmarks.search_tasks import REAL, Replayed, Searched, Trained, Tried
from driftline.results import objectives
from driftline.results.curves import Array, TrialCurve
from driftline.results.recorded_table import read
from driftline.study.rung_rounds import FACTOR
from search_spaces.parameters import Choice

TRIALS, CHECKPOINTS, WORKERS, BOOTSTRAP, ROUNDING = 64, 8, 8, 2000, 1e-9
RULES: dict[str, Any] = {
    "TPE to the end": None,
    "TPE, rungs by halving": "auto",
    "TPE, rungs by extrapolation": {"at": "auto", "rule": "extrapolation"},
}
PEERS = {
    "Ray Tune: ASHA, OptunaSearch": ("ray_tune", "asha_ray_tune"),
    "Syne Tune: MOASHA": ("syne_tune", "moasha_syne_tune"),
}


@dataclass(frozen=True)
class Progress:
    """Searches of one kind, after every eighth of their trials.

    Attributes:
        gradients: Client gradients trained, (seeds, checkpoints).
        areas: Area of the confirmed frontier, (seeds, checkpoints).
    """

    gradients: Array
    areas: Array


def progress(searched: Searched, searches: Sequence[Tried]) -> Progress:
    """What searches, one for each seed, have found after every eighth of their trials."""
    counts = [searched.trials * part // CHECKPOINTS for part in range(1, CHECKPOINTS + 1)]
    gradients, areas = np.zeros((len(searches), len(counts))), np.zeros((len(searches), len(counts)))
    for seed, tried in enumerate(searches):
        spent = np.cumsum([curve.columns["client_gradients"][-1] for _, curve in tried])
        for index, count in enumerate(counts):
            gradients[seed, index] = spent[count - 1]
            areas[seed, index] = searched.area(seed, tried[:count])
    return Progress(gradients, areas)


def share(one: Progress, whole: Progress, seeds: Any) -> float:
    """Share of `whole`'s gradients at which the mean area over seeds reaches that of `whole`; NaN if it never does.

    Between two checkpoints, areas are interpolated.
    """
    target, all_of_them = whole.areas[seeds, -1].mean(), whole.gradients[seeds, -1].mean()
    areas, gradients = one.areas[seeds].mean(axis=0), one.gradients[seeds].mean(axis=0) / all_of_them
    (there,) = np.nonzero(areas >= target - ROUNDING)
    if not len(there):
        return math.nan
    index = int(there[0])
    if index == 0:
        return float(gradients[0])
    return float(np.interp(target, areas[index - 1 : index + 1], gradients[index - 1 : index + 1]))


def share_text(one: Progress, whole: Progress) -> str:
    """The share with its interval."""
    count = len(one.areas)
    draws = np.random.default_rng(0).integers(count, size=(BOOTSTRAP, count))
    shares = [share(one, whole, seeds) for seeds in draws]
    low, high = np.quantile(np.nan_to_num(shares, nan=np.inf), [0.025, 0.975], method="nearest")
    found = share(one, whole, np.arange(count))
    texts = [f"{value:.0%}" if np.isfinite(value) else "never" for value in (found, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def difference(one: Array, other: Array) -> str:
    """The mean difference, paired over seeds, with its 95 % interval."""
    from scipy.stats import t

    gaps = one - other
    half = float(t.ppf(0.975, len(gaps) - 1)) * gaps.std(ddof=1) / math.sqrt(len(gaps))
    return f"{gaps.mean():+.3f} ± {half:.3f}"


# ---- peers


def plain(space: Mapping[str, Any]) -> dict[str, Any]:
    """A space as peers read it: choices and ranges, without extra points."""
    return {
        name: {"choice": list(parameter.options)}
        if isinstance(parameter, Choice)
        else {"range": [float(parameter.low), float(parameter.high)], "log": parameter.log}
        for name, parameter in space.items()
    }


def search_by_peer(ask: Ask, searched: Searched, seed: int) -> Tried:
    """The trials of a peer's search, in order, as far as they are trained."""
    (entry,), objective, rungs = searched.study.methods, searched.study.objective, searched.rungs
    train = searched.trainer(seed)
    begun: Tried = []
    running: list[tuple[int, int]] = []  # (trial, its next rung), in the order of their turns
    ended: dict[int, TrialCurve] = {}
    ask("begin", plain(entry.parameters()), seed, rungs[-1], rungs[0], FACTOR)
    while len(ended) < searched.trials:
        while len(running) < WORKERS and len(begun) < searched.trials:
            running.append((len(begun), 0))
            begun.append(train(ask("ask", len(begun))))
        number, rung = running.pop(0)
        part = begun[number][1].until(rungs[rung])
        diverged = part.state == "DIVERGED"
        if diverged:  # as a user would tell it
            worst = -10 * float(part.metric(objective.quality)[1][0])
            values = {"quality": worst, "speed": worst}
        else:
            values = objectives.values(part, objective.quality, objective.cost)
        stopped = ask("report", number, {"round": rungs[-1] if diverged else rungs[rung], **values})
        if stopped or diverged or rung == len(rungs) - 1:
            ended[number] = part
        else:
            running.append((number, rung + 1))
    return [(row, ended[number]) for number, (row, _) in enumerate(begun)]


def compare(name: str, make: Callable[[Any], Searched], seeds: int, folder: Path | None) -> None:
    """Prints a line for each search of a table or a task."""
    whole: Progress | None = None
    for rule, rungs in RULES.items():
        began, searched = time.process_time(), make(rungs)
        found = progress(searched, [searched.search(seed) for seed in range(seeds)])
        whole = whole or found
        _print(name, rule, found, whole, began)
    for rule, (peer, script) in PEERS.items() if folder is not None and whole is not None else ():
        began, searched = time.process_time(), make("auto")
        with asked(environment(folder, peer), SCRIPTS / f"{script}.py") as (ask, _):
            found = progress(searched, [search_by_peer(ask, searched, seed) for seed in range(seeds)])
        _print(name, rule, found, whole, began)


def _print(table: str, name: str, found: Progress, whole: Progress, began: float) -> None:
    spent = f"{found.gradients[:, -1].mean() / whole.gradients[:, -1].mean():.0%}"
    if found is whole:
        gap = f"area {found.areas[:, -1].mean():.3f}"
    else:
        gap = difference(found.areas[:, -1], whole.areas[:, -1])
    cells = (table, name, spent, gap, share_text(found, whole), f"{time.process_time() - began:.0f}")
    print("|", " | ".join(cells), "|", flush=True)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="Client gradients that a search needs for what full-length TPE finds.")
    parser.add_argument("--tables", nargs="*", type=Path, help="recorded tables; all of benchmarks/tables by default")
    parser.add_argument("--real", action="store_true", help="train small studies")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="folder for the peers' environments")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=24, help="of a study that is really trained")
    parser.add_argument("--more-with-rungs", type=float, default=1.0, help="so many times the trials, with rungs")
    parser.add_argument("--rounds", type=int, default=36, help="of a trial that is really trained")
    given = parser.parse_args()
    heads = ("table or task", "search", "client gradients", "area - full-length TPE", "share to reach its area (95 %)")
    print(f"| {' | '.join(heads)} | CPU-s |\n{'|---' * len(heads)}|---|", flush=True)
    wider = given.more_with_rungs
    if given.tables is not None:
        for path in given.tables or sorted(TABLES.glob("*.parquet")):
            replayed = partial(Replayed, scaled(read(path)))
            compare(path.stem, _sized(replayed, TRIALS, wider), given.seeds, given.peers)
    for task in REAL if given.real else ():
        trained = partial(Trained, task, rounds=given.rounds)
        compare(f"{task}, trained", _sized(trained, given.trials, wider), given.seeds, given.peers)


def _sized(make: Callable[..., Searched], trials: int, wider: float) -> Callable[[Any], Searched]:
    """Makes what is searched, with this many trials; with rungs, `wider` times as many."""
    return lambda rungs: make(rungs=rungs, trials=trials if rungs is None else round(wider * trials))


if __name__ == "__main__":
    main()
