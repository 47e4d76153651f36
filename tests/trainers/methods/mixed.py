"""Problems and runs that the tests of mixed federated learning share."""

import numpy as np

from trainers.engine.packs.pack import Pack
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.central import central_quadratic
from trainers.trial.document import parse
from trainers.trial.roles import ROLES

METHODS = ("parallel_training", "one_way_transfer", "two_way_transfer")
INIT = [2.0, -1.0, 0.5]
WEIGHTS = [0.1, 0.4, 0.3, 0.2]
DIGITS = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}, "central": {"fraction": 0.1}}


def hessian(generator, dimension=3, low=0.5, high=4.0):
    basis = np.linalg.qr(generator.standard_normal((dimension, dimension)))[0]
    held = basis @ np.diag(generator.uniform(low, high, dimension)) @ basis.T
    return (held + held.T) / 2


def problem(clients=4, equal=False, weights=None, seed=3):
    """(document, clients' hessians, centers, the server's hessian, center)."""
    generator = np.random.default_rng(seed)
    hessians = np.array([hessian(generator) for _ in range(clients)])
    if equal:
        hessians = np.repeat(hessians[:1], clients, 0)
    centers, own, center = generator.standard_normal((clients, 3)), hessian(generator), generator.standard_normal(3)
    document = {
        "name": "quadratic",
        "hessians": hessians.tolist(),
        "centers": centers.tolist(),
        "central": {"hessian": own.tolist(), "center": center.tolist()},
        **({} if weights is None else {"client_weights": weights}),
    }
    return document, hessians, centers, own, center


def train(name, rounds=1, given=None, **changes):
    """Report lines; changes of the method by its names, of the trial under `trial`, optimizers by their roles."""
    trial = {**{role: changes.pop(role) for role in ROLES if role in changes}, **changes.pop("trial", {})}
    document = {
        "task": given or problem()[0],
        "method": {"name": name, "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4, **changes},
        "rounds": rounds,
        "dtype": "float64",
        "init": INIT if given is None or given["name"] == "quadratic" else None,
        "report": ["params"],
        **trial,
    }
    document["method"] = {key: value for key, value in document["method"].items() if value is not None}
    return Pack.from_spec(parse(document)).advance()


def models(*arguments, **more):
    """(rounds + 1, parameters)."""
    return np.array([line["params"] for line in train(*arguments, **more)])


def scalar(hessians, centers, own, center):
    return {
        "name": "quadratic",
        "hessians": [[[value]] for value in hessians],
        "centers": [[value] for value in centers],
        "central": {"hessian": [[own]], "center": [center]},
    }


def halved(clients, central, weight=0.5):
    """The losses of the theory, weights inside."""
    scaled = client_quadratics(weight * clients.hessians, clients.centers, clients.weights)
    return scaled, central_quadratic((1 - weight) * central.hessian, central.center)
