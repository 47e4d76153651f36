"""Three quadratic clients, and local steps on them written out."""

import numpy as np

from trainers.engine import randomness

HESSIANS = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 3.0]], [[4.0, 1.0], [1.0, 2.0]]])
CENTERS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
START, SEED = [2.0, -3.0], 4
WORK = {"client_lr": 0.1, "local_steps": 6}


def document(method, **changes):
    return {
        "task": {"name": "quadratic", "hessians": HESSIANS.tolist(), "centers": CENTERS.tolist()},
        "method": method,
        "init": START,
        "seed": SEED,
        "rounds": 12,
        "eval_every": 1,
        "report": ["params"],
        **changes,
    }


def models(lines):
    return np.array([line["params"] for line in lines])


def clients_of(number, size):
    return randomness.cohort(SEED, number, 3, size).tolist()
