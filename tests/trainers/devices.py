"""Trials that together use all that the engine has, to be run on one device and another."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.trainers.datasets import npz_task
from tests.trainers.methods.trials import document, member_settings
from tests.trainers.test_client_optimizers import own_settings
from trainers.registry import methods, reports, schedules
from trainers.trial.roles import serving

DIGITS = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}}
NETWORKS = {
    "softmax": "softmax",
    "mlp": {"name": "mlp", "hidden": [6], "dropout": 0.2},
    "cnn": {"name": "cnn", "filters": [2], "kernel": 3, "dense": 5, "dropout": 0.2, "crop": 1},
}
TASKS: dict[str, Any] = {"quadratic": None, **{name: {**DIGITS, "model": model} for name, model in NETWORKS.items()}}
REGRESSION = {"name": "linear_regression", "clients": 6, "dimension": 3}


def pack(method: str, task: Any = None, **changes: Any) -> dict[str, Any]:
    """The document of three trials of a method."""
    given = document(method, task=task, rounds=3, **changes)
    return {**given, "members": [member_settings(given, 1), {}, member_settings(given, 2)]}


def with_method(given: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The same with other settings of the method, in all trials."""
    return {**given, "method": {**given["method"], **settings}}


def of_methods(task: str) -> dict[str, dict[str, Any]]:
    """Every method on a task."""
    return {f"{method} {task}": pack(method, TASKS[task]) for method in methods()}


def of_parts() -> dict[str, dict[str, Any]]:
    """Everything that is not a method, once."""
    softmax, mlp = TASKS["softmax"], TASKS["mlp"]
    found = {f"server {name}": pack("fedavg", softmax, server=name) for name in serving("server")}
    found |= {f"schedule {name}": pack("fedprox", softmax, schedule=name) for name in schedules()}
    found |= {
        f"client {name}": {
            **with_method(pack("fedavg", mlp), clip_norm=0.5),
            "client": {"name": name, **own_settings(name)},
        }
        for name in serving("client")
    }
    plateau = pack("fedavg", softmax, schedule="plateau")
    plateau["schedule"] |= {"monitor": "accuracy"}
    plateau["members"] = [{}, {"client_lr": 0.02}]
    stored = with_method(pack("scaffold", mlp), variates="stored")
    diverging = pack("feddyn", softmax)
    diverging["members"] = [{}, {"client_lr": 100.0, "server_lr": 1e12}, {"server_lr": 0.02}]
    elsewhere = ("displacement_ratio", "overhead", "lyapunov", "item_rows")
    seen = ["params", *(name for name in reports() if name not in elsewhere)]
    return found | {
        "accuracy watched": plateau,
        "variates stored": stored,
        "a trial that diverges": diverging,
        "regression": pack("fedavg", REGRESSION),
        "all data in a step": pack("fedprox", softmax, batch_size=None),
        "epochs": {**with_method(pack("fedavg", softmax), local_epochs=1, local_steps=None), "members": [{}, {}]},
        "adaptation": pack("maml", mlp, adaptation={"steps": [0, 2]}),
        "reports": pack("two_way_transfer", mlp, report=seen),
        "alignment reported": pack("fedga", mlp, report=["displacement_ratio", "overhead"]),
        "a function of the theory": pack("mass", report=["lyapunov"]),
        "settings by client": with_method(
            pack("mass", report=["lyapunov"]),
            rate_share_by_client=[0.5, 1.0] * 3,
            mixing_by_client=[0.3, 0.6] * 3,
            condition_by_client=[2.0, 1.5] * 3,
        ),
    }


def with_test_clients(folder: Path) -> dict[str, Any]:
    """A trial on a file of its own in which test examples belong to clients, each of which is reported."""
    draw = np.random.default_rng(0)
    train = draw.normal(size=(60, 7)), np.arange(60) % 3, np.repeat(np.arange(6), 10)
    test = draw.normal(size=(30, 7)), np.arange(30) % 3, np.repeat(np.arange(3), [15, 10, 5])
    return pack("fedavg", npz_task(folder / "clients.npz", train, test), report=["client_accuracy"])
