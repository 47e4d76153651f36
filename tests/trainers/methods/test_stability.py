"""Where methods with data of the server stop converging, and how noise settles: one random instance, and ratios.

The instance and the numbers are those of a plain loop over numpy vectors, made once with the seed 0: a 4-dimensional
loss of the clients with curvatures 0.2 to 1 and one of the server with 0.5 to 2. The stable steps are in units of
client_lr local_steps (largest curvature of the sum).
"""

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import round_map
from trainers.trial.document import parse

GENERATOR = np.random.default_rng(0)


def curved(low, high):
    basis = np.linalg.qr(GENERATOR.normal(size=(4, 4)))[0]
    held = basis @ np.diag(np.linspace(low, high, 4)) @ basis.T
    return (held + held.T) / 2


A, C = curved(0.2, 1.0), curved(0.5, 2.0)
P, Q = GENERATOR.normal(size=4) * 2, GENERATOR.normal(size=4) * 2
CLIENTS, CENTRAL = client_quadratics(A[None], P[None]), central_quadratic(C, Q)
LARGEST = np.linalg.eigvalsh(A + C).max()


def rate(name, step, local_steps, **more):
    client_lr = step / (local_steps * LARGEST)
    method = {"name": name, "client_lr": client_lr, "delta_lr": 1.0, "local_steps": local_steps, **more}
    return round_map(method, CLIENTS, central=CENTRAL).rate


def limit(name, local_steps, high, **more):
    """The largest stable step."""
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(name, middle, local_steps, **more) < 1 else (low, middle)
    return low


LIMITS = [  # method, local steps, largest stable step and its rounding
    ("parallel_training", 1, 2.0, 0.005),
    ("parallel_training", 2, 6.6, 0.05),
    ("parallel_training", 16, 45, 0.5),
    ("one_way_transfer", 1, 2.0, 0.005),
    ("one_way_transfer", 2, 2.42, 0.005),
    ("one_way_transfer", 16, 2.86, 0.005),
    ("two_way_transfer", 1, 1.0, 0.005),  # two-way transfer is the first to diverge
    ("two_way_transfer", 2, 1.50, 0.005),
    ("two_way_transfer", 16, 2.60, 0.005),
]


@pytest.mark.filterwarnings("ignore::trainers.theory.warning.TheoryWarning")
@pytest.mark.parametrize(("name", "steps", "stable", "rounding"), LIMITS)
def test_largest_stable_step(name, steps, stable, rounding):
    assert limit(name, steps, 60.0) == pytest.approx(stable, abs=rounding)


@pytest.mark.filterwarnings("ignore::trainers.theory.warning.TheoryWarning")
def test_largest_stable_step_of_two_way_transfer_that_merges_by_the_mean():
    assert limit("two_way_transfer", 1, 10.0, merge_by="mean") == pytest.approx(2.0, abs=1e-9)


STEPS = (2, 5, 10)


def floors(name, noisy):
    """Mean square of the coordinates that noise keeps from 0, for each of STEPS, small steps on x^2 / 2 + x^2 / 2."""
    size, rounds = 64, 140
    unit = (2 * np.eye(size)).tolist()
    task = {"name": "quadratic", "hessians": [unit], "centers": [[0.0] * size], "gradient_noise": 2.0}
    task |= {"central": {"hessian": unit, "center": [0.0] * size}}
    members = [{"client_lr": 0.1 / k, "server_lr": 0.1 / k, "local_steps": k} for k in STEPS]
    few, many = 1, 10**12  # a batch of many examples has no noise left
    method = {"name": name, **members[0], "central_batch_size": few if noisy == "server" else many}
    document = {"task": task, "method": method, "members": members, "rounds": rounds, "report": ["params"]}
    lines = Pack.from_spec(parse({**document, "batch_size": many if noisy == "server" else few})).advance()
    held = [[line["params"] for line in lines if line["member"] == k and line["round"] > 30] for k in range(3)]
    return (np.array(held) ** 2).mean((1, 2))


@pytest.mark.parametrize("noisy", ["server", "clients"])
def test_noise_floors(noisy):
    """One-way transfer takes one noisy central gradient a round; two-way transfer steps along a sum twice as long."""
    floor = floors("parallel_training", noisy)
    wanted = {"server": STEPS, "clients": [1, 1, 1]}[noisy]
    assert floors("one_way_transfer", noisy) / floor == pytest.approx(wanted, rel=0.15)
    assert floors("two_way_transfer", noisy) / floor == pytest.approx([2.2, 2.2, 2.2], rel=0.2)
