"""What the four writes of a pack cost the store (SQLite), in a study that has more and more trials.

    OMP_NUM_THREADS=1 python -m benchmarks.store_writes [--sizes 500,2000,5000,10000,20000]

A pack's trials are created, started, reported (51 rounds of two metrics) and finished, without API and driver. The
study is filled in packs of 200; at each size, 25 packs of 8 trials are timed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import count
from pathlib import Path

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Report, TrialResult
from driftline.wire.ids import holder
from driftline.wire.records import Values
from service.store.store import Store

PACKS, WIDTH, FILLING, ROUNDS = 25, 8, 200, 51
SPECIFICATION = {
    "name": "store writes",
    "task": {"name": "digits", "clients": 50},
    "methods": [{"label": "fedavg", "name": "fedavg", "server": {"name": "sgd"}}],
    "objective": {"quality": "test_accuracy", "cost": "rounds", "optimize": "both"},
    "budget": {"trials_per_method": 10**6, "rounds": ROUNDS - 1, "seeds": 0, "confirm": 1},
}


class Writer:
    """A driver's writes.

    Args:
        store: The store, in which a study is created.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._study = store.studies.create(SPECIFICATION, "f" * 64).id
        self._attempt = store.leases.acquire(self._study, holder()).attempt
        self._numbers = count()
        self._curve = encode(
            {
                "round": list(range(ROUNDS)),
                "test_accuracy": [0.9 * at / ROUNDS for at in range(ROUNDS)],
                "test_loss": [2.0 - at / ROUNDS for at in range(ROUNDS)],
            }
        )
        self.trials = 0

    def pack(self, width: int) -> None:
        """Everything that is written of a pack of trials."""
        hyperparameters = {"client_lr": 0.1, "server_lr": 1.0, "local_steps": 5}
        new = [
            NewTrial(
                label="fedavg",
                phase="search",
                number=number,
                seed=0,
                configuration=number,
                hyperparameters=hyperparameters,
            )
            for number in (next(self._numbers) for _ in range(width))
        ]
        self.trials += width
        ids = [trial.id for trial in self._store.trials.create(self._study, self._attempt, new)]
        pack = f"pack{self.trials}"
        self._store.trials.start_pack(self._study, self._attempt, pack, ids)
        reports = dict.fromkeys(ids, self._curve)
        report = Report(attempt=self._attempt, pack=pack, reports=reports, rounds_done=ROUNDS - 1)
        self._store.curves.report(self._study, report)
        values = Values(quality=0.5, speed=0.5)
        results = [TrialResult(trial=trial, state="COMPLETE", values=values) for trial in ids]
        self._store.trials.finish(self._study, self._attempt, results)


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="500,2000,5000,10000,20000", help="trials of the study")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    print("| trials of the study | store, CPU-ms a trial |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="driftline-benchmark-") as folder:
        store = Store(Path(folder) / "driftline.db")
        writer = Writer(store)
        for size in sizes:
            while writer.trials < size:
                writer.pack(FILLING)
            began = time.process_time()
            for _ in range(PACKS):
                writer.pack(WIDTH)
            print(f"| {size:,} | {1e3 * (time.process_time() - began) / PACKS / WIDTH:.1f} |", flush=True)
        store.close()


if __name__ == "__main__":
    main()
