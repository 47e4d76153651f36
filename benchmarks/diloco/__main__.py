"""Runs the studies of docs/diloco.md and decides its statements.

    OMP_NUM_THREADS=1 python -m benchmarks.diloco                   # all of it, in two processes
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --only steps      # a part: cells whose names begin so
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --minutes 55      # begins no piece after 55 minutes
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --estimate        # what the parts would take here
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --decide          # what the finished pieces say, nothing is run
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --decide --page docs/diloco.md

Finished pieces are kept in --out, so the same command continues where it was stopped. With --smoke FILE tiny models are
trained on a text of your own for a round or two.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.diloco.cells import cells
from benchmarks.diloco.outcomes import Outcomes
from benchmarks.diloco.page import decided, minutes, page
from benchmarks.diloco.training import pieces, run, timed, trials
from trainers.own_files import put


def main() -> None:
    """Runs what is missing, then prints every statement with its verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/diloco"), help="folder of the finished pieces")
    parser.add_argument("--only", nargs="+", default=[""], help="cells whose names begin with one of these")
    parser.add_argument("--minutes", type=float, default=None, help="begin no piece after this time")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="as cuda, for all processes")
    parser.add_argument("--estimate", action="store_true", help="print what the parts would take, and run nothing")
    parser.add_argument("--decide", action="store_true", help="decide from what is there, and run nothing")
    parser.add_argument("--page", type=Path, default=None, help="write docs/diloco.md to this file")
    parser.add_argument("--smoke", type=Path, default=None, help="a text file: tiny models, for a few rounds")
    options = parser.parse_args()
    plan = cells(None if options.smoke is None else str(options.smoke.resolve()))
    chosen = [cell for cell in plan if cell.name.startswith(tuple(options.only))]
    if not chosen:
        parser.error(
            f"--only: no cell begins with {' or '.join(options.only)}: {', '.join(cell.name for cell in plan)}"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    known = options.out / "estimates.json"
    estimates = json.loads(known.read_text()) if known.exists() else {}
    if options.estimate:
        for cell in chosen:
            estimates[cell.name] = timed(cell)
            put(known, json.dumps(estimates).encode())
        print(minutes(chosen, options.out, estimates, options.processes))
        return
    if not options.decide:
        missing = [piece for piece in pieces(chosen) if not piece.table(options.out).exists()]
        run(missing, options.out, processes=options.processes, minutes=options.minutes, device=options.device)
    done = [piece for piece in pieces(plan) if piece.table(options.out).exists()]
    outcomes = Outcomes.of((piece.cell, trial) for piece in done for trial in trials(piece, options.out))
    print(decided(plan, outcomes))
    if options.page is not None:
        times = minutes(plan, options.out, estimates, options.processes)
        put(options.page, page(plan, outcomes, times).encode())


if __name__ == "__main__":
    main()
