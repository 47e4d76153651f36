"""Every task, with every model of images and servers in turn: it trains, reports what it says, alone and in a pack."""

import itertools
from typing import Any

import pytest

from trainers.engine.packs.pack import Pack
from trainers.registry import models, tasks
from trainers.trial.document import parse

from .datasets import needs
from .documents import SERVERS

# Small settings; tasks that are not named here are tested with 3 clients.
SMALL: dict[str, dict[str, Any]] = {
    "cifar": {"clients": 3},
    "digits": {"clients": 3, "partition": {"classes_per_client": 4}},
    "fashion": {"clients": 3, "partition": "by_label"},
    "mnist_by_writer": {"writers": 3, "test_writers": 2},
    "omniglot": {"clients": 3, "episodes": {"ways": 2, "queries": 2, "test_clients": 2}, "model": "softmax"},
    "sinusoids": {"clients": 3, "test_clients": 2},
    "logistic_regression": {"clients": 3, "size_mean": 1},
    "tag_prediction": {"clients": 3, "words": 20, "tags": 4},
    "linear_regression": {"clients": 3, "examples": [20, 30, 10], "dimension": 4},
    "text": {
        "sources": 3,
        "context": 8,
        "test_windows": 9,
        "model": {"name": "transformer", "width": 8, "depth": 1, "heads": 2},
    },
    "quadratic": {"problem": "random", "clients": 3, "dimension": 4},
}
FILES = {
    "cifar": "cifar10_subset/cifar10_subset.npz",
    "fashion": "fashion_mnist_900/fashion_mnist_900.npz",
    "mnist_by_writer": "mnist_by_writer/mnist_by_writer.npz",
    "omniglot": "omniglot/images_evaluation.npz",
    "text": "shakespeare/shakespeare_speeches.jsonl.gz",
}
MODELS: dict[str, Any] = {
    **{name: name for name in models() if models()[name].TARGETS == "classes"},
    "mlp": {"name": "mlp", "hidden": [8], "dropout": 0.2},
    "cnn": {"name": "cnn", "filters": [2, 3], "kernel": 3, "dense": 8},
    "resnet": {"name": "resnet", "blocks": [1, 1], "width": 2},
}
PICTURES = ("cifar", "digits", "fashion", "mnist_by_writer")


def cases() -> list[Any]:
    """Every model on every task of images, and every other task; a task does not know which server it has."""
    pairs = [(task, model) for task in PICTURES for model in MODELS]
    pairs += [(task, None) for task in tasks() if task not in ("data", "npz", *PICTURES)]
    marks = {task: [pytest.mark.data, needs(file)] for task, file in FILES.items()}
    turns = zip(pairs, itertools.cycle(SERVERS), strict=False)
    return [pytest.param(*pair, server, marks=marks.get(pair[0], [])) for pair, server in turns]


def document(task: str, model: str | None, server: str) -> dict[str, Any]:
    settings = {"name": task, **SMALL.get(task, {"clients": 3})}
    if model is not None:
        settings["model"] = MODELS[model]
    return {
        "task": settings,
        "method": {"name": "fedavg", "server_lr": 0.01, "local_steps": 2},
        "server": {"name": server},
        "clients_per_round": 2,
        "batch_size": 4,
        "rounds": 2,
        "seed": 3,
        "dtype": "float64",
        "eval_every": 1,
    }


def trained(trial: dict[str, Any], rates: list[float]) -> dict[float, list[dict[str, Any]]]:
    """Report lines by client_lr."""
    spec = parse({**trial, "members": [{"client_lr": rate} for rate in rates]})
    lines = Pack.from_spec(spec).advance()
    drop = ("member", "wall_seconds")
    return {
        rate: [
            {key: value for key, value in line.items() if key not in drop} for line in lines if line["member"] == member
        ]
        for member, rate in enumerate(rates)
    }


def near(line: dict[str, Any]) -> dict[str, Any]:
    """The line with its numbers made approximate to rounding."""
    numbers = {key: value for key, value in line.items() if isinstance(value, float)}
    return line | {key: pytest.approx(value, rel=1e-10, abs=1e-12) for key, value in numbers.items()}


@pytest.mark.parametrize(("task", "model", "server"), cases())
def test_every_task_trains_and_reports_the_same_in_a_pack(task: str, model: str | None, server: str) -> None:
    trial = document(task, model, server)
    together, alone = trained(trial, [0.05, 0.1]), trained(trial, [0.1])[0.1]
    assert [line["round"] for line in alone] == [0, 1, 2]
    assert alone[-1]["train_loss"] != alone[1]["train_loss"]
    assert set(parse({**trial, "members": [{"client_lr": 0.1}]}).metrics) <= set(alone[-1])
    for one, other in zip(alone, together[0.1], strict=True):
        assert other == near(one)


@pytest.mark.parametrize("name", ["logistic_regression", "tag_prediction"])
def test_a_drawn_client_depends_on_its_number_and_the_seed_alone(name: str) -> None:
    task = tasks()[name]
    one, more, other = (
        task.build(task.parse({"name": name, "clients": clients, "data_seed": seed}, "task"), "float64").train
        for clients, seed in ((3, 1), (5, 1), (3, 2))
    )
    assert one.inputs.tolist() == more.inputs[: len(one.inputs)].tolist()
    assert one.targets.tolist() == more.targets[: len(one.targets)].tolist()
    assert one.inputs.tolist() != other.inputs.tolist()
