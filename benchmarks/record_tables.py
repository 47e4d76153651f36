"""Records tables for `driftline replay`: random configurations of a study's label, each trained on many seeds.

    OMP_NUM_THREADS=1 python benchmarks/record_tables.py benchmarks/tables/digits.yaml fedavg --parts out/parts

All configurations of a seed are trained in one pack. Every finished seed is kept under --parts, so that the command
continues where it was stopped. The table is then written beside the study, as STUDY-LABEL.parquet.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from driftline.results.recorded_table import COUNTERS, RecordedTable, recorded, recorded_trial, write
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.driver.search.study_plan import independent_sampler_seed
from service.samplers.build import build
from trainers import Pack, evaluation_grid, parse


def drawn(study: Study, label: str, count: int) -> list[dict[str, Any]]:
    """The first `count` configurations that a random search of a label proposes."""
    sampler = build("random", study.entry(label).parameters(), (), independent_sampler_seed(study.seed, label))
    return [sampler.ask(number) for number in range(count)]


def trained(
    study: Study, label: str, configurations: list[dict[str, Any]], seed: int
) -> dict[str, NDArray[np.float64]]:
    """Quality and counters, (configurations, evaluations) each, NaN beyond a trial's end; `diverged`: round or 0."""
    grid = {number: index for index, number in enumerate(sorted(evaluation_grid(study.budget.rounds)))}
    shape = (len(configurations), len(grid))
    found: dict[str, NDArray[np.float64]] = {name: np.full(shape, np.nan) for name in ("quality", *COUNTERS)}
    found["diverged"] = np.zeros(shape[0])
    pack = Pack.from_spec(parse(trial_document(study, label, configurations, seed)))
    while not pack.done:
        for line in pack.advance(seconds=5.0):
            member = line["member"]
            if line["diverged"]:
                found["diverged"][member] = line["round"]
            if line["round"] in grid:
                at = member, grid[line["round"]]
                value = line.get(study.objective.quality)
                found["quality"][at] = math.nan if value is None else value
                for name in COUNTERS:
                    found[name][at] = line[name]
    return found


def table(study: Study, label: str, configurations: list[dict[str, Any]], folder: Path) -> RecordedTable:
    """The table of all parts in a folder. A trial has its evaluated rounds, and the one in which it diverged."""
    document = study.to_json()
    own = Study.from_json({**document, "methods": [entry for entry in document["methods"] if entry["label"] == label]})
    rounds = np.array(sorted(evaluation_grid(study.budget.rounds)), dtype=np.float64)
    trials = []
    for seed, part in enumerate(sorted(folder.glob("???.npz"))):
        found = np.load(part)
        for number, hyperparameters in enumerate(configurations):
            end = found["diverged"][number]
            kept = rounds <= end if end else np.ones(len(rounds), dtype=bool)
            columns = {name: found[name][number, kept] for name in COUNTERS}
            columns |= {"round": rounds[kept], study.objective.quality: found["quality"][number, kept]}
            if end and columns["round"][-1] < end:
                rates = {name: columns[name][-1] / columns["round"][-1] for name in COUNTERS}
                last = {name: end * rate for name, rate in rates.items()} | {"round": end}
                columns = {name: np.append(values, last.get(name, math.nan)) for name, values in columns.items()}
            state = "DIVERGED" if end else "COMPLETE"
            trials.append(recorded_trial(label, number, seed, hyperparameters, state, columns))
    return recorded(own, trials)


def main() -> None:
    """Trains what is missing, and writes the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("study", type=Path)
    parser.add_argument("label")
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--configurations", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=48)
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = Study.from_yaml(options.study)
    configurations = drawn(study, options.label, options.configurations)
    folder = options.parts / f"{study.name}-{options.label}"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        part = folder / f"{seed:03d}.npz"
        if part.exists():
            continue
        started, cpu = time.perf_counter(), time.process_time()
        found = trained(study, options.label, configurations, seed)
        seconds = time.process_time() - cpu
        print(
            f"{folder.name}: seed {seed}: {time.perf_counter() - started:.1f} s, {seconds:.1f} s of a core", flush=True
        )
        fresh = part.with_suffix(".new.npz")
        np.savez_compressed(fresh, seconds=np.array(seconds), allow_pickle=False, **found)
        fresh.rename(part)
    whole = table(study, options.label, configurations, folder)
    path = options.study.with_name(f"{folder.name}.parquet")
    write(whole, path, "float16")
    seconds = sum(float(np.load(part)["seconds"]) for part in folder.glob("???.npz"))
    diverged = sum(trial.state == "DIVERGED" for trial in whole.trials)
    print(
        f"{path}: {len(whole.trials)} trials, {diverged} diverged, {path.stat().st_size / 1e6:.2f} MB, "
        f"{seconds:.0f} s of a core"
    )


if __name__ == "__main__":
    main()
