"""Random search in two processes, without any tuner; run by `benchmarks/peer_products.py`."""

import math
import random
from multiprocessing import get_context
from typing import Any

from trial_task import RATES, STEPS, TrialTask, given, write


def search(folder: str, trials: int, seed: int) -> list[dict[str, Any]]:
    """Trains random configurations."""
    task, generator = TrialTask(folder), random.Random(seed)
    found = []
    for _ in range(trials):
        rates = {name: math.exp(generator.uniform(*map(math.log, ends))) for name, ends in RATES.items()}
        values = {**rates, "local_steps": generator.choice(STEPS)}
        *_, loss = task.train(**values)
        found.append({**values, "test_loss": loss})
    return found


def main() -> None:
    folder, out, trials = given()
    shares = [(folder, trials // 2, 0), (folder, trials - trials // 2, 1)]
    with get_context("spawn").Pool(2) as pool:
        write(out, [trial for part in pool.starmap(search, shares) for trial in part])


if __name__ == "__main__":
    main()
