"""How many client gradients a search needs for what full-length TPE finds: rungs, and the schedulers of other tuners.

    OMP_NUM_THREADS=1 python -m benchmarks.search --tables --real --peers FOLDER --seeds 10

--tables replays studies of one label from the recorded tables (all, or those named): TPE whose 64 trials train to the
end, and the same with rungs by halving and by extrapolation. With --peers, Ray Tune's ASHA with OptunaSearch and Syne
Tune's MOASHA search the same tables. Each gets an environment below FOLDER and runs as a process that is asked over a
pipe (benchmarks/peer_processes.py). Neither a cluster nor a backend is started: 8 simulated workers train one rung
after the other, in turn, and the peers' own schedulers and searchers propose configurations and stop trials, at the
same rungs. A proposal is moved to the nearest row of the table that the search has not tried.

All are judged by the area of the confirmed, cross-fitted frontier (8 configurations on 6 fresh seeds) on the table's
fixed scale, after every 8 trials. The share is that of full-length TPE's client gradients with which the mean area over
seeds first reaches the mean area of full-length TPE; its 95 % interval is from 2000 bootstrap samples of the seeds.

--real trains small studies without Ray, in this process: TPE to the end, and with rungs by either rule. Priors from
theory and from earlier studies are measured by `benchmarks/priors.py`, branching by `benchmarks/branching.py`.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.early_stopping import CONFIRM, SEEDS, TABLES, scaled
from benchmarks.peer_processes import SCRIPTS, Ask, asked, environment
from driftline.results import objectives
from driftline.results.curves import Array, TrialCurve
from driftline.results.recorded_table import RecordedTable, read
from driftline.study.rung_rounds import FACTOR
from driftline.study.spec import Budget, Study
from search_spaces.parameters import Choice
from service.api.computed_results import computed_frontier
from service.replay.nearest import NearestRows
from service.replay.simulation import Replay
from service.store.store import Store
from tests.driver.stand_ins import StoreClient
from tests.driver.test_search import Bench

TRIALS, EVERY, WORKERS, BOOTSTRAP, ROUNDING = 64, 8, 8, 2000, 1e-9
RULES: dict[str, Any] = {
    "TPE to the end": None,
    "TPE, rungs by halving": "auto",
    "TPE, rungs by extrapolation": {"at": "auto", "rule": "extrapolation"},
}
PEERS = {
    "Ray Tune: ASHA, OptunaSearch": ("ray_tune", "asha_ray_tune"),
    "Syne Tune: MOASHA": ("syne_tune", "moasha_syne_tune"),
}
Tried = list[tuple[int, TrialCurve]]


@dataclass(frozen=True)
class Progress:
    """Searches of one kind, after every `EVERY` trials.

    Attributes:
        gradients: Client gradients trained, (seeds, checkpoints).
        areas: Area of the confirmed frontier, (seeds, checkpoints).
    """

    gradients: Array
    areas: Array


def progress(replay: Replay, searches: Sequence[Tried]) -> Progress:
    """What searches, one for each seed, have found after every `EVERY` trials."""
    (label,) = replay.names
    counts = range(EVERY, TRIALS + 1, EVERY)
    gradients, areas = np.zeros((len(searches), len(counts))), np.zeros((len(searches), len(counts)))
    for seed, tried in enumerate(searches):
        _, *fresh = replay.seeds(seed)[0]
        spent = np.cumsum([curve.columns["client_gradients"][-1] for _, curve in tried])
        for index, count in enumerate(counts):
            document = replay.document(replay.confirmed(label, tried[:count], fresh))
            gradients[seed, index] = spent[count - 1]
            areas[seed, index] = document["methods"][label]["area"]
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


def search_by_peer(ask: Ask, replay: Replay, seed: int) -> Tried:
    """The rows that a peer tries, in order, and their trials as far as they are trained."""
    (label,) = replay.names
    grid, objective, rungs = replay.grid(label), replay.study.objective, replay.rungs
    data_seed = replay.seeds(seed)[0][0]
    curves = [grid.curves[number, data_seed] for number in grid.configurations]
    space = replay.study.entry(label).parameters()
    nearest = NearestRows(space, [curve.hyperparameters for curve in curves])
    rows: list[int] = []
    running: list[tuple[int, int]] = []  # (trial, its next rung), in the order of their turns
    ended: dict[int, TrialCurve] = {}
    ask("begin", plain(space), seed, rungs[-1], rungs[0], FACTOR)
    while len(ended) < TRIALS:
        while len(running) < WORKERS and len(rows) < TRIALS:
            configuration = ask("ask", len(rows))
            running.append((len(rows), 0))
            rows.append(nearest.nearest(configuration, sorted({*range(len(curves))} - {*rows})))
        number, rung = running.pop(0)
        part = curves[rows[number]].until(rungs[rung])
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
    return [(rows[number], ended[number]) for number in range(TRIALS)]


# ---- tables and real studies


def replayed(table: RecordedTable, rungs: Any, sampler: Any = "tpe") -> Replay:
    """Replays studies of a table's label."""
    budget = Budget(
        trials_per_method=TRIALS, rounds=table.study.budget.rounds, rungs=rungs, confirm=CONFIRM, seeds=SEEDS
    )
    return Replay(table, [table.study.labels[0]], budget, sampler)


def tables(paths: Sequence[Path], seeds: int, folder: Path | None) -> None:
    """Prints a line for each table and method."""
    print("| table | search | client gradients | area - full-length TPE | share to reach its area (95 %) | CPU-s |")
    print("|---|---|---|---|---|---|")
    for path in paths:
        table = scaled(read(path))
        whole: Progress | None = None
        for name, rungs in RULES.items():
            began = time.process_time()
            replay = replayed(table, rungs)
            found = progress(replay, [replay.tried(replay.names[0], seed) for seed in range(seeds)])
            whole = whole or found
            _print(path.stem, name, found, whole, began)
        for name, (peer, script) in PEERS.items() if folder is not None and whole is not None else ():
            began = time.process_time()
            replay = replayed(table, "auto", "random")
            with asked(environment(folder, peer), SCRIPTS / f"{script}.py") as (ask, _):
                found = progress(replay, [search_by_peer(ask, replay, seed) for seed in range(seeds)])
            _print(path.stem, name, found, whole, began)


def _print(table: str, name: str, found: Progress, whole: Progress, began: float) -> None:
    spent = f"{found.gradients[:, -1].mean() / whole.gradients[:, -1].mean():.0%}"
    if found is whole:
        gap = f"area {found.areas[:, -1].mean():.3f}"
    else:
        gap = difference(found.areas[:, -1], whole.areas[:, -1])
    cells = (table, name, spent, gap, share_text(found, whole), f"{time.process_time() - began:.0f}")
    print("|", " | ".join(cells), "|", flush=True)


REAL: dict[str, dict[str, Any]] = {
    "digits": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
    "mnist-by-writer": {"name": "mnist_by_writer", "writers": 100, "test_writers": 10},
}


def trained(task: str, rungs: Any, seed: int, trials: int, rounds: int) -> tuple[float, float]:
    """(client gradients of the search, area) of a study that is really trained, on the scale of the task's table."""
    scale = scaled(read(TABLES / f"{task}-fedavg.parquet")).study.objective.scale
    assert scale is not None
    rates = {"client_lr": {"float": [1e-3, 1.0], "log": True}, "server_lr": {"float": [1e-3, 10.0], "log": True}}
    document = {
        "name": "search",
        "task": REAL[task],
        "methods": [{"name": "fedavg", "space": {**rates, "local_steps": {"choice": [1, 2, 4, 8, 16]}}}],
        "objective": {"quality": "test_loss", "scale": {"start": scale.start, "best": scale.best}},
        "budget": {"trials_per_method": trials, "rounds": rounds, "seeds": 3, "confirm": 4, "rungs": rungs},
        "resources": {"gpu": 0},
        "sampler": {"name": "tpe", "startup": 8},
        "clients_per_round": 5,
        "batch_size": 10,
        "seed": 1000 * seed,
    }
    study = Study.from_json(document)
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
        client = StoreClient(Store(Path(folder) / "driftline.db"))
        study_id = client.submit(study)
        Bench(client, study_id, study, Path(folder) / "checkpoints").run()
        search = [trial.id for trial in client.store.trials.find(study_id, phase="search")]
        curves = client.store.curves.columns(study_id, search)
        area = computed_frontier(client.store, study_id)["methods"]["fedavg"]["area"]
        client.store.close()
    return float(sum(curve["client_gradients"][-1] for curve in curves.values())), float(area)


def real(seeds: int, trials: int, rounds: int) -> None:
    """Prints a line for each task and method."""
    print(f"| task, {trials} trials of {rounds} rounds | search | client gradients | area - full-length TPE | CPU-s |")
    print("|---|---|---|---|---|")
    for task in REAL:
        whole: Array | None = None
        for name, rungs in RULES.items():
            began = time.process_time()
            found = np.array([trained(task, rungs, seed, trials, rounds) for seed in range(seeds)])
            whole = found if whole is None else whole
            gap = f"area {found[:, 1].mean():.3f}" if found is whole else difference(found[:, 1], whole[:, 1])
            spent = f"{found[:, 0].mean() / whole[:, 0].mean():.0%}"
            print("|", " | ".join((task, name, spent, gap, f"{time.process_time() - began:.0f}")), "|", flush=True)


def main() -> None:
    """Prints a table for each part that is asked for."""
    parser = argparse.ArgumentParser(description="Client gradients that a search needs for what full-length TPE finds.")
    parser.add_argument("--tables", nargs="*", type=Path, help="recorded tables; all of benchmarks/tables by default")
    parser.add_argument("--real", action="store_true", help="train small studies")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="folder for the peers' environments")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=24, help="of a study that is really trained")
    parser.add_argument("--rounds", type=int, default=36, help="of a trial that is really trained")
    given = parser.parse_args()
    if given.tables is not None:
        tables(given.tables or sorted(TABLES.glob("*.parquet")), given.seeds, given.peers)
    if given.real:
        real(given.seeds, given.trials, given.rounds)


if __name__ == "__main__":
    main()
