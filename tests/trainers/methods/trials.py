"""A trial of any method: its document, settings of further members, its lines, and whether two trials do the same."""

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.hyperparameters import describe
from trainers.registry import methods, optimizers, schedules
from trainers.trial.document import parse

USUAL = {
    "client_lr": 0.04,
    "server_lr": 0.05,
    "local_steps": 3,
    "prox": 0.5,
    "displacement": 0.1,
    "gradient_weights": [1.0, 0.5, 2.0],
    "strong_convexity": 1.0,
    "smoothness": 3.0,
}
IGNORED = {"wall_seconds", "member"}


def part(module, name, member=0):
    """Settings for all required hyperparameters of a module, and for all traced ones of further members."""
    found = {"name": name} if member == 0 else {}
    for item in describe(module.Hyper):
        if item.required or (item.traced and item.default is not None):
            value = USUAL.get(item.name, item.default if not item.required else None)
            if value is None:
                value = item.choices[0] if item.choices else max(item.low or 0, 1)
            if item.traced and member and item.kind in ("float", "int"):
                value = value + member if item.kind == "int" else value * (1 - 0.2 * member)
                if item.low is not None:
                    value = max(value, item.low)
            if item.traced and member and item.kind == "floats":
                value = [*value, 0.5][-1 - member :]
            found[item.name] = value
    return found


def cohort_size(method):
    return methods()[method].CLIENTS_PER_ROUND or 4


def with_central(method, task):
    """The task, with data of the server for a method that trains on them, unless it has some."""
    if not methods()[method].CENTRAL or "central" in task:
        return task
    own = {"hessian": np.diag([1.0, 2.0, 3.0]).tolist(), "center": [0.0, 0.0, 0.0]}
    return {**task, "central": own if task["name"] == "quadratic" else {"fraction": 0.1}}


def quadratic(**more):
    return {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3, "gradient_noise": 0.1, **more}


def document(method, server="sgd", schedule="constant", task=None, **changes):
    return {
        "task": with_central(method, task or quadratic()),
        "method": part(methods()[method], method),
        "server": part(optimizers()[server], server),
        "schedule": part(schedules()[schedule], schedule),
        "clients_per_round": cohort_size(method),
        "batch_size": 2,
        "dtype": "float64",
        "rounds": 6,
        "eval_every": 1,
        "seed": 5,
        **changes,
    }


def member_settings(given, number):
    """Other values of every traced hyperparameter."""
    found = part(methods()[given["method"]["name"]], given["method"]["name"], number)
    for kind, registry in (("server", optimizers), ("schedule", schedules)):
        own = part(registry()[given[kind]["name"]], given[kind]["name"], number)
        found.update({f"{kind}.{name}": value for name, value in own.items()})
    return found


def train(given):
    return Pack.from_spec(parse(given)).advance()


def same(lines, others, tolerance=1e-10):
    assert len(lines) == len(others)
    for line, other in zip(lines, others, strict=True):
        assert line.keys() == other.keys()
        for name in line.keys() - IGNORED:
            wanted = other[name] if other[name] is None else pytest.approx(other[name], rel=tolerance, abs=tolerance)
            assert line[name] == wanted, (line["round"], name)


def alone(given, settings):
    """The document of one member."""
    single = {key: dict(value) if isinstance(value, dict) else value for key, value in given.items()}
    for name, value in settings.items():
        kind, _, bare = name.rpartition(".")
        single.setdefault(kind or "method", {"name": "sgd"})[bare] = value
    return single
