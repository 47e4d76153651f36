"""Whether a study that is run again with another seed contradicts the first: real studies on digits, in pairs.

    OMP_NUM_THREADS=1 python -m benchmarks.repeated_studies [--contrasts NAME ...] [--pairs 5] [--skip 0]

The driver's search and the engine run as always, one pack after the other in this process, without Ray and without a
database (`benchmarks/generations.py`). Each contrast has two labels and is repeated with pairs of seeds. Every study
has 6 searches, so that it can claim something about the methods. Printed is a line for each pair: both verdicts about
the methods, the differences of the areas, and whether the verdicts are opposite.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.generations import search_in_memory
from driftline.results.comparison import compare
from driftline.results.study_result import study_result
from driftline.study.spec import Study
from driftline.wire.curve_codec import encode
from service.driver.ray.worker import build, columns

_RATES = {"client_lr": {"float": [0.01, 2], "log": True}, "server_lr": {"float": [0.01, 3], "log": True}}
_STEPS = {"local_steps": {"choice": [1, 5, 20]}}
_PROX = {"prox": {"float": [0.01, 1], "log": True}}
_MOMENTUM = {"name": "sgd", "space": {"momentum": 0.9}}

CONTRASTS: dict[str, list[dict[str, Any]]] = {
    "momentum": [
        {"label": "plain", "name": "fedavg", "space": {**_RATES, **_STEPS}},
        {"label": "momentum", "name": "fedavg", "space": {**_RATES, **_STEPS}, "server": _MOMENTUM},
    ],
    "local steps": [
        {"label": "few", "name": "fedavg", "space": {**_RATES, "local_steps": {"choice": [1, 2]}}},
        {"label": "many", "name": "fedavg", "space": {**_RATES, "local_steps": {"choice": [10, 20]}}},
    ],
    "client rate": [
        {"label": "zero", "name": "fedavg", "space": {**_RATES, **_STEPS, "client_lr": 0}},
        {"label": "tuned", "name": "fedavg", "space": {**_RATES, **_STEPS}},
    ],
    "prox": [
        {"label": "fedavg", "name": "fedavg", "space": {**_RATES, **_STEPS}},
        {"label": "fedprox", "name": "fedprox", "space": {**_RATES, **_STEPS, **_PROX}},
    ],
}


def study_of(methods: list[dict[str, Any]], seed: int) -> Study:
    """A study of two entries on digits with skewed labels."""
    return Study.from_json(
        {
            "name": "repeated",
            "task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
            "methods": methods,
            "clients_per_round": 10,
            "batch_size": 20,
            "objective": {"quality": "test_loss", "cost": "rounds"},
            "budget": {"trials_per_method": 48, "rounds": 60, "searches": 6, "confirm": 6, "seeds": 6},
            "resources": {"packs": 8},
            "seed": seed,
        }
    )


def compared(study: Study) -> dict[str, Any]:
    """Runs a study, and compares its two labels."""
    memory, search = search_in_memory(study, workers=1)
    while job := search.next_job():
        pack, _, _ = build(job)
        lines: list[dict[str, Any]] = []
        while not pack.done:
            lines += pack.advance(seconds=60.0)
        found = columns(lines, pack.members)
        facts = {"pack": job.pack, "pid": 1, "host": "h", "remark": None, "error": None, "stopped": False}
        blocks = {"reports": [encode(one) for one in found], "rounds_done": pack.round, "checkpoint": None}
        search.report({**facts, **blocks, "plan": {**pack.plan.to_json(), **pack.work}, "done": True})
    result = study_result(memory.record, memory.rows.values(), memory.columns)
    first, second = study.labels
    return compare(result.document, first, second)


def cell(found: dict[str, Any]) -> str:
    """The verdict about the methods, and the difference over searches."""
    difference = found["claims"]["methods"]["difference"]
    return f"{found['verdict'] or 'none'}, {difference['mean']:+.3f}"


def main() -> None:
    """Prints a line for each pair of studies, and a sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="pairs of studies for each contrast")
    parser.add_argument("--skip", type=int, default=0, help="how many of these pairs have been run before")
    parser.add_argument("--contrasts", nargs="+", choices=CONTRASTS, default=list(CONTRASTS))
    options = parser.parse_args()
    print("| contrast | seeds | first study | second study | opposite | CPU s |\n|---|---|---|---|---|---|", flush=True)
    decided = opposite = count = 0
    for name in options.contrasts:
        for pair in range(options.skip, options.pairs):
            started = time.process_time()
            first, second = (compared(study_of(CONTRASTS[name], 100 * pair + 50 * half)) for half in (0, 1))
            both = {first["verdict"], second["verdict"]} - {None}
            decided += first["verdict"] is not None and second["verdict"] is not None
            opposite += len(both) == 2
            count += 1
            seconds = time.process_time() - started
            row = [
                name,
                f"{100 * pair}, {100 * pair + 50}",
                cell(first),
                cell(second),
                "yes" if len(both) == 2 else "no",
            ]
            print("|", " | ".join([*row, f"{seconds:.0f}"]), "|", flush=True)
    print(f"\n{count} pairs; {decided} with a verdict in both studies, {opposite} with opposite ones")


if __name__ == "__main__":
    main()
