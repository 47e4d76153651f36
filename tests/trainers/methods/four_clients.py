"""Four quadratic clients, trials of any method on them, and rounds of some of them as the papers write them."""

import numpy as np
import pytest

from trainers.engine import randomness
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

WEIGHTS = [0.1, 0.4, 0.3, 0.2]
INIT = [2.0, -1.0, 0.5]
RATES = {"client_lr": 0.05, "server_lr": 0.04}
WORK = {**RATES, "local_steps": 4}
STORED = {"name": "scaffold", **WORK, "variates": "stored"}
FEDDYN = {"name": "feddyn", **WORK, "prox": 0.4}
HAND = {"name": "quadratic", "hessians": [[[1.0]], [[3.0]]], "centers": [[0.0], [3.0]]}
DIGITS = {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}}
COHORT = {"clients_per_round": 3, "batch_size": 5, "seed": 3, "server": {"name": "sgd", "momentum": 0.6}}


def losses(seed=0, clients=4, dimension=3, equal=False):
    """Hessians with eigenvalues in [0.5, 4], and centers."""
    generator = np.random.default_rng(seed)
    bases = np.linalg.qr(generator.standard_normal((clients, dimension, dimension)))[0]
    values = generator.uniform(0.5, 4.0, (clients, dimension))
    hessians = np.einsum("ijk,ik,ilk->ijl", bases, values, bases)
    hessians = (hessians + hessians.transpose(0, 2, 1)) / 2
    return np.repeat(hessians[:1], clients, 0) if equal else hessians, generator.standard_normal((clients, dimension))


def task(weights=None, noise=0.0, **options):
    hessians, centers = losses(**options)
    more = {} if weights is None else {"client_weights": weights}
    return {
        "name": "quadratic",
        "hessians": hessians.tolist(),
        "centers": centers.tolist(),
        "gradient_noise": noise,
        **more,
    }


def pack(method, rounds=1, given=None, **changes):
    document = {
        "task": given or task(),
        "method": method,
        "rounds": rounds,
        "dtype": "float64",
        "init": INIT,
        "report": ["params"],
        **changes,
    }
    return Pack.from_spec(parse(document))


def train(*arguments, **more):
    """Report lines of a trial; with members, of all of them."""
    return pack(*arguments, **more).advance()


def models(*arguments, **more):
    """(rounds + 1, parameters)."""
    return np.array([line["params"] for line in train(*arguments, **more)])


def same(one, two, given=None, tolerance=1e-12, metrics=("train_loss", "update_norm"), **changes):
    """Two methods do the same, in a cohort with momentum, on noisy quadratics and on digits, or on the given task."""
    for chosen, init in [(task(noise=0.3), INIT), (DIGITS, None)] if given is None else [(given, None)]:
        settings = {**COHORT, "init": init, **changes}
        lines, others = (train(method, 6, chosen, **settings) for method in (one, two))
        for line, other in zip(lines, others, strict=True):
            np.testing.assert_allclose(line["params"], other["params"], rtol=0, atol=tolerance)
            for name in metrics:
                wanted = other[name] if other[name] is None else pytest.approx(other[name], abs=tolerance)
                assert line[name] == wanted


class Papers:
    """Rounds of some of the clients, as the papers write them: every client by itself, changes of models."""

    def __init__(self, seed, size):
        self.hessians, self.centers = losses()
        self.seed, self.size = seed, size
        self.x = np.array(INIT)
        self.p = np.array(WEIGHTS)

    def gradient(self, client, at):
        return self.hessians[client] @ (at - self.centers[client])

    def run(self, rounds):
        models = [self.x]
        for number in range(rounds):
            cohort = randomness.cohort(self.seed, number, 4, self.size)
            self.round(cohort, self.p[cohort] / self.p[cohort].sum())
            models.append(self.x)
        return np.array(models)

    def ends(self, cohort, direction):
        found = []
        for i in cohort:
            y = self.x
            for _ in range(WORK["local_steps"]):
                y = y - WORK["client_lr"] * direction(i, y)
            found.append(y)
        return np.array(found)
