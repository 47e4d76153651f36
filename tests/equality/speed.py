"""Compares the speed of two trees: what benchmarks/engine.py measures, old and new in turns.

    python -m tests.equality.speed OLD_TREE NEW_TREE [--repeats 15] [--only mlp]

A repeat starts one process for each tree; in both, one row of the benchmark after the other is measured, the old tree
first in even repeats. Processes are fresh in each repeat, because memory and the choice of an oracle differ between
them. A ratio is CPU-ms of a round, new / old; printed are the median over the repeats and its 95 % interval, from a
bootstrap over the repeats with a fixed seed. Exits with 1 when the lower end is above 1.03; fewer than 15 repeats are
too few to say so.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.equality.record import environment

MOST = 1.03
LEAST_REPEATS = 15
_TURNS = 3
_RESAMPLED = 10_000

# In the process of a tree: its own benchmark, one row when asked for; what that prints names the oracle.
_PROGRAM = """
import contextlib, importlib.util, io, json, pathlib, statistics, sys, tempfile
spec = importlib.util.spec_from_file_location("engine_benchmark", sys.argv[1])
engine = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)
engine.torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    path, inputs, targets = engine.data(pathlib.Path(folder))
    for line in sys.stdin:
        case = engine.CASES[int(line)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            engine_ms, _ = engine.measure(case, path, inputs, targets, int(sys.argv[2]))
        row = [cell.strip() for cell in printed.getvalue().split("|")]
        name = f"{case.model} {case.trials}"
        print(json.dumps({"row": name, "oracle": row[3], "ms": statistics.median(engine_ms)}), flush=True)
"""


def measured(trees: Sequence[Path], rows: Sequence[int], swapped: bool) -> list[list[dict[str, Any]]]:
    """One repeat: for each row of the benchmark what the processes of both trees measured.

    Args:
        trees: old and new.
        rows: numbers of rows.
        swapped: whether the new tree is measured first.
    """
    with tempfile.TemporaryDirectory() as name:
        processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(tree.resolve() / "benchmarks" / "engine.py"), str(_TURNS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=name,
                env=environment(tree, Path(name)),
            )
            for tree in trees
        ]
        answers_by_row = []
        for row in rows:
            answers: dict[int, dict[str, Any]] = {}
            for index in (1, 0) if swapped else (0, 1):
                process = processes[index]
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{row}\n")
                process.stdin.flush()
                answers[index] = json.loads(process.stdout.readline())
            answers_by_row.append([answers[0], answers[1]])
        for process in processes:
            process.communicate()
    return answers_by_row


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """(lower end, median, upper end) of ratios: the 95 % interval of their median by the bootstrap.

    Examples:
        >>> interval([1.0] * 15)
        (1.0, 1.0, 1.0)
    """
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLED))
    return medians[int(0.025 * _RESAMPLED)], statistics.median(ratios), medians[int(0.975 * _RESAMPLED)]


def rows_of(tree: Path, only: str | None) -> list[int]:
    """Numbers of the rows of a tree's benchmark, all or those of one model."""
    program = _PROGRAM.partition("with tempfile")[0] + "print(json.dumps([case.model for case in engine.CASES]))"
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-P", "-c", program, str(tree.resolve() / "benchmarks" / "engine.py")]
        done = subprocess.run(command, cwd=name, env=environment(tree, Path(name)), capture_output=True, check=True)
    models = json.loads(done.stdout)
    return [number for number, model in enumerate(models) if only in (None, model)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="a checkout")
    parser.add_argument("--repeats", type=int, default=LEAST_REPEATS)
    parser.add_argument("--only", help="one model")
    options = parser.parse_args()
    rows = rows_of(options.old, options.only)
    repeats = []
    for number in range(options.repeats):
        repeats.append(measured([options.old, options.new], rows, swapped=number % 2 == 1))
        print(f"repeat {number + 1} of {options.repeats}", file=sys.stderr)
    print("| model, trials | oracle | old, CPU-ms | new, CPU-ms | new / old | 95 % interval | verdict |")
    print("|---|---|---|---|---|---|---|")
    slower = 0
    for index in range(len(rows)):
        both = [repeat[index] for repeat in repeats]
        low, middle, high = interval([new["ms"] / old["ms"] for old, new in both])
        oracles = sorted({answer["oracle"] for pair in both for answer in pair})
        old_ms, new_ms = (statistics.median(pair[tree]["ms"] for pair in both) for tree in (0, 1))
        verdict = "too few repeats" if len(repeats) < LEAST_REPEATS else "too slow" if low > MOST else "fine"
        slower += verdict == "too slow"
        print(
            f"| {both[0][0]['row']} | {', '.join(oracles)} | {old_ms:.1f} | {new_ms:.1f} | **{middle:.3f}** "
            f"| {low:.3f} to {high:.3f} | {verdict} |"
        )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
