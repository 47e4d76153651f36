"""The digits task: the data is all there, split without overlap, and its absence is said clearly."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers.data import digits_images as data
from trainers.data.federated import Federated
from trainers.data.partition_choice import FORMS
from trainers.engine.packs.pack import Pack
from trainers.errors import MissingDataError, SpecError
from trainers.tasks import digits
from trainers.trial.document import parse as parse_trial

from .datasets import bag, check_shape


def parsed(**document: Any) -> Federated:
    return digits.parse({"name": "digits", **document}, "task")


def test_the_whole_set_is_there() -> None:
    pictures, labels = data.load()
    assert pictures.shape == (1797, 64)
    assert (pictures.min(), pictures.max()) == (0.0, 1.0)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (pictures[0] * 16).astype(int).tolist()[:8] == [0, 0, 5, 13, 9, 1, 0, 0]


def test_scikit_learn_is_not_imported() -> None:
    script = "import sys; from trainers.data.digits_images import load; load(); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("partition", ["by_label", {"dirichlet": 0.3}])
def test_a_problem_holds_every_example_once(partition: Any) -> None:
    settings = parsed(clients=23, partition=partition, central={"fraction": 0.1})
    problem = digits.build(settings, "float64")
    train, test, central = problem.train, problem.test, problem.central
    assert (settings.clients, train.clients, test.clients, central.clients) == (23, 23, 1, 1)
    check_shape(train, (1, 8, 8), settings.examples)
    pictures, labels = data.load()
    whole = sorted(np.append(x, y).tobytes() for x, y in zip(pictures, labels, strict=True))
    assert bag(train, test, central) == whole
    held_out = np.bincount(test.targets) / np.bincount(labels)
    assert np.abs(held_out - 0.2).max() < 0.005
    assert len(central.inputs) == pytest.approx(0.1 * 1437, abs=5)
    assert problem.model_settings == {"classes": 10}


@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [6]}])
def test_classes_of_the_server_alone_are_measured_apart(model: Any) -> None:
    settings = parsed(clients=6, central={"classes": [7, 2]}, model=model)
    problem = digits.build(settings, "float64")
    assert set(problem.train.targets) == set(range(10)) - {2, 7}
    assert set(problem.central.targets) == {2, 7}
    assert (problem.train.clients, len(problem.train.targets) + len(problem.central.targets)) == (6, 1438)
    method = {"name": "parallel_training", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3}
    trial = {"task": settings.document, "method": method, "rounds": 3, "dtype": "float64"}
    line = Pack.from_spec(parse_trial(trial)).advance()[-1]
    central = np.isin(problem.test.targets, [2, 7])
    assert 0.1 < central.mean() < 0.3
    for measure in ("loss", "accuracy"):
        parts = [line[f"test_{measure}_{whose}"] for whose in ("federated", "central")]
        assert parts[0] * (1 - central.mean()) + parts[1] * central.mean() == pytest.approx(line[f"test_{measure}"])
        assert parts[0] != parts[1]


def test_defaults_and_the_filled_document() -> None:
    settings = parsed()
    assert settings.document == {
        "name": "digits",
        "clients": 50,
        "partition": "iid",
        "split_seed": 0,
        "central": None,
        "model": "softmax",
    }
    again = digits.parse(json.loads(json.dumps(settings.document)), "task")
    assert all(np.array_equal(a, b) for a, b in zip(again.parts, settings.parts, strict=True))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"clients": 5000},
            "task.clients must be in [1, 1438], one training example for each at least, got clients=5000",
        ),
        ({"partitions": "iid"}, 'unknown key "partitions" in task: did you mean partition?'),
        (
            {"partition": "natural"},
            f"task.partition must not be natural for digits, whose writers are not recorded: use {FORMS}",
        ),
        (
            {"clients": 3, "partition": {"classes_per_client": 2}},
            (
                "task.clients times classes_per_client must be at least 10, the number of labels, "
                "got clients=3 and classes_per_client=2"
            ),
        ),
        ({"central": 0.1}, 'task.central must be like {"fraction": 0.1}, got central=0.1'),
        ({"central": {"part": 0.1}}, 'unknown key "part" in task.central: known are classes, clients, fraction'),
        ({"central": {"classes": [3, 11]}}, "task.central.classes: no class 11 for training: did you mean 1?"),
        (
            {"central": {"classes": list(range(10))}},
            "task.central.classes must leave an example to the clients, got classes=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
        ),
        (
            {"central": {"classes": [3, 3]}},
            "task.central.classes must be a list of different labels, got classes=[3, 3]",
        ),
        (
            {"central": {"classes": [3], "fraction": 0.1}},
            'task.central must be like {"fraction": 0.1}, got central={"classes": [3], "fraction": 0.1}',
        ),
        ({"central": {"fraction": 1}}, "task.central.fraction must be in (0, 1), got fraction=1"),
        ({"central": {"fraction": 1e-4}}, "task.central.fraction must give the server an example, got 0.0001"),
        ({"model": "quadratic"}, 'task.model must be a model of labelled examples, got model="quadratic"'),
    ],
)
def test_wrong_documents(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parsed(**document)
    assert str(caught.value) == message


def test_missing_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data.load.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDataError) as caught:
        parsed()
    assert str(caught.value) == (
        "task: the digits data must be installed, got no scikit-learn with its data: pip install scikit-learn"
    )
    assert caught.value.path == "task"


def test_damaged_data_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data.load.cache_clear()
    broken = tmp_path / "digits.csv.gz"
    monkeypatch.setattr(data, "find", lambda: broken)
    for content in (b"no gzip", gzip.compress(b"1,2,3\n" * 70)[:-9], gzip.compress(b"1,b\n")):
        broken.write_bytes(content)
        with pytest.raises(MissingDataError, match=r"must be readable, got \w+ for digits.csv.gz: install it again"):
            data.load()
