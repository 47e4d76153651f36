"""Runs the studies of docs/diloco.md and decides its statements.

    OMP_NUM_THREADS=1 python -m benchmarks.diloco                   # all of it, in two processes
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --only steps      # a part: cells whose names begin so
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --minutes 55      # begins no piece after 55 minutes
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --estimate        # what the parts would take here
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --decide          # what the finished pieces say, nothing is run
    OMP_NUM_THREADS=1 python -m benchmarks.diloco --decide --page docs/diloco.md

    OMP_NUM_THREADS=1 python -m benchmarks.diloco --decide --keep          # numbers go to finished.jsonl

The numbers of finished pieces are in --out, so the same command continues where it was stopped, and after --keep in
finished.jsonl as well, which is committed: no other computer runs them again. A piece that was made with other settings
is named and not used. With --smoke FILE tiny models are trained on a text of your own for a round or two.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.diloco.cells import cells
from benchmarks.diloco.finished import KEPT, finished, keep, pieces
from benchmarks.diloco.outcomes import Outcomes
from benchmarks.diloco.page import decided, minutes, page, row
from benchmarks.diloco.training import run, timed
from trainers.own_files import put

ESTIMATES = Path(__file__).with_name("estimates.json")
"""Row of the page's last table -> minutes of a core."""


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
    parser.add_argument("--keep", action="store_true", help=f"write the finished pieces to {KEPT.name}, too")
    parser.add_argument("--page", type=Path, default=None, help="write docs/diloco.md to this file")
    parser.add_argument("--smoke", type=Path, default=None, help="a text file: tiny models, for a few rounds")
    options = parser.parse_args()
    if options.keep and options.smoke is not None:
        parser.error("--keep: the pieces of --smoke are of no use to others: leave one of the two out")
    plan = cells(None if options.smoke is None else str(options.smoke.resolve()))
    chosen = [cell for cell in plan if cell.name.startswith(tuple(options.only))]
    if not chosen:
        parser.error(
            f"--only: no cell begins with {' or '.join(options.only)}: {', '.join(cell.name for cell in plan)}"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    kept = KEPT if options.smoke is None else None
    estimates: dict[str, float] = json.loads(ESTIMATES.read_text())
    if options.estimate:
        for name in dict.fromkeys(map(row, chosen)):
            estimates[name] = sum(timed(cell) for cell in plan if row(cell) == name) / 60
            put(ESTIMATES, f"{json.dumps(estimates, indent=1)}\n".encode())
        print(minutes(chosen, finished(pieces(plan), options.out, kept)[0], estimates, options.processes))
        return
    if not options.decide:
        there, _ = finished(pieces(plan), options.out, kept)
        missing = [piece for piece in pieces(chosen) if piece.name not in there]
        run(missing, options.out, processes=options.processes, minutes=options.minutes, device=options.device)
    found, others = finished(pieces(plan), options.out, kept)
    if others:
        print(f"not used, as their settings have changed: {', '.join(others)}\n")
    if options.keep:
        keep(found)
    done = [piece for piece in pieces(plan) if piece.name in found]
    outcomes = Outcomes.of((piece.cell, trial) for piece in done for trial in found[piece.name].trials(piece))
    print(decided(plan, outcomes))
    if options.page is not None:
        put(options.page, page(plan, outcomes, minutes(plan, found, estimates, options.processes)).encode())


if __name__ == "__main__":
    main()
