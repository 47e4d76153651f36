"""The tasks on pictures: exact counts, every picture used once, the same split for the same seed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers.data import images
from trainers.data.folder import data_dir
from trainers.data.partition_choice import FORMS
from trainers.errors import MissingDataError, SpecError
from trainers.problem import Problem
from trainers.registry import tasks

from .datasets import check_shape, needs

SETS = {"fashion": images.FASHION, "cifar": images.CIFAR, "mnist_by_writer": images.MNIST}
MARKS = {name: [pytest.mark.data, needs(pictures.file)] for name, pictures in SETS.items()}
PICTURES = [pytest.param(name, marks=MARKS[name]) for name in SETS]


def with_data(name: str) -> Any:
    data, there = MARKS[name]
    return lambda test: data(there(test))


def parsed(name: str, **document: Any) -> Any:
    return tasks()[name].parse({"name": name, **document}, "task")


def built(name: str, dtype: str = "float32", **document: Any) -> Problem:
    return tasks()[name].build(parsed(name, **document), dtype)


@with_data("fashion")
def test_fashion_is_all_there() -> None:
    assert np.bincount(images.FASHION.labels()).tolist() == [90] * 10
    problem = built("fashion", clients=40)
    check_shape(problem.train, (1, 28, 28), [18] * 40)
    check_shape(problem.test, (1, 28, 28), [180])
    assert np.bincount(problem.test.targets).tolist() == [18] * 10
    assert problem.train.inputs.dtype == np.float32
    assert (problem.train.inputs.min(), problem.train.inputs.max()) == (0, 1)


@with_data("cifar")
def test_cifar_is_all_there_and_standardised() -> None:
    labels = images.CIFAR.labels()
    assert np.bincount(labels[:4000]).tolist() == [396, 366, 420, 384, 422, 393, 414, 385, 407, 413]
    assert labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    problem = built("cifar", "float64", clients=50)
    check_shape(problem.train, (3, 32, 32), [80] * 50)
    check_shape(problem.test, (3, 32, 32), [1000])
    np.testing.assert_allclose(problem.train.inputs.mean((0, 2, 3)), 0, atol=1e-7)
    np.testing.assert_allclose(problem.train.inputs.std((0, 2, 3)), 1, atol=1e-7)
    assert problem.test.targets.tolist() == labels[4000:].tolist()
    with np.load(data_dir() / images.CIFAR.file) as archive:
        pixel = archive["images"][4000, 5, 7] / 255
    expected = (pixel - np.array(images.CIFAR.mean)) / np.array(images.CIFAR.deviation)
    np.testing.assert_allclose(problem.test.inputs[0, :, 5, 7], expected, rtol=1e-12)


@with_data("mnist_by_writer")
def test_every_writer_is_a_client() -> None:
    settings = parsed("mnist_by_writer")
    assert (settings.clients, len(settings.test)) == (539, 297)
    assert settings.document == {
        "name": "mnist_by_writer",
        "writers": None,
        "test_writers": None,
        "clients": 539,
        "partition": "natural",
        "split_seed": 0,
        "central": None,
        "model": "softmax",
    }
    sizes = settings.examples
    assert (sizes.min(), np.median(sizes), sizes.max(), sizes.sum()) == (19, 116, 131, 60000)
    assert sum(len(part) for part in settings.test) == 10000
    assert np.array_equal(np.sort(np.concatenate(settings.parts)), np.arange(60000))
    assert np.array_equal(np.sort(np.concatenate(settings.test)), np.arange(60000, 70000))
    writers = images.MNIST.writers()
    theirs = [np.unique(writers[part]).tolist() for part in (*settings.parts, *settings.test)]
    assert all(len(people) == 1 for people in theirs)
    assert len({people[0] for people in theirs}) == 539 + 297


@with_data("mnist_by_writer")
def test_pictures_stay_with_their_writers() -> None:
    problem = built("mnist_by_writer", writers=7, test_writers=3)
    settings = parsed("mnist_by_writer", writers=7, test_writers=3)
    check_shape(problem.train, (1, 28, 28), [len(part) for part in settings.parts])
    check_shape(problem.test, (1, 28, 28), [len(part) for part in settings.test])
    assert (problem.train.clients, problem.test.clients) == (7, 3)
    with np.load(data_dir() / images.MNIST.file) as archive:
        pictures, labels = archive["images"], archive["labels"]
    rows = np.concatenate(settings.parts)
    assert np.array_equal(problem.train.inputs[:, 0], pictures[rows].astype(np.float32) / np.float32(255))
    assert np.array_equal(problem.train.targets, labels[rows])
    assert problem.train.inputs.dtype == np.float32


@with_data("mnist_by_writer")
def test_writers_can_be_mixed() -> None:
    partition = {"dirichlet": 0.3}
    natural = parsed("mnist_by_writer", writers=30, test_writers=5)
    mixed = parsed("mnist_by_writer", writers=30, test_writers=5, partition=partition)
    assert mixed.clients == 30
    assert parsed("mnist_by_writer", writers=30, partition=partition, clients=12).clients == 12
    assert np.array_equal(np.sort(np.concatenate(mixed.parts)), np.sort(np.concatenate(natural.parts)))
    assert [part.tolist() for part in mixed.test] == [part.tolist() for part in natural.test]


@pytest.mark.parametrize("name", PICTURES)
def test_the_split_depends_on_the_document_alone(name: str) -> None:
    document = {"clients": 20, "partition": {"dirichlet": 0.3}, "central": {"fraction": 0.1}}
    one, same, other = (parsed(name, split_seed=seed, **document) for seed in (0, 0, 1))
    again = tasks()[name].parse(json.loads(json.dumps(one.document)), "task")
    for twin in (same, again):
        assert all(np.array_equal(a, b) for a, b in zip(one.parts, twin.parts, strict=True))
        assert np.array_equal(one.central, twin.central)
        assert twin.document == one.document
    assert any(not np.array_equal(a, b) for a, b in zip(one.parts, other.parts, strict=True))


UNNATURAL = "which has no natural clients"
WRONG = [
    ("fashion", {"partition": "natural"}, f"must not be natural for fashion, {UNNATURAL}: use {FORMS}"),
    ("fashion", {"clients": None, "partition": "iid"}, "task.clients must be given (at least 1)"),
    ("fashion", {"writers": 3}, 'unknown key "writers" in task: known are'),
    (
        "cifar",
        {"model": {"name": "softmax", "layers": 3}},
        "task.model must be the name alone: softmax has no settings, got layers",
    ),
    ("mnist_by_writer", {"writers": 540}, "task.writers must be in [1, 539], got writers=540"),
    ("mnist_by_writer", {"test_writers": 0}, "task.test_writers must be in [1, 297], got test_writers=0"),
    (
        "mnist_by_writer",
        {"clients": 40, "writers": 50},
        "task.clients must be left out for the natural partition, which has 50, got clients=40",
    ),
]


@pytest.mark.parametrize(("name", "document", "message"), [pytest.param(*row, marks=MARKS[row[0]]) for row in WRONG])
def test_wrong_documents(name: str, document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parsed(name, **document)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SETS)
def test_missing_data_says_which_variable_to_set(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with pytest.raises(MissingDataError) as caught:
        parsed(name)
    file = SETS[name].file
    assert str(caught.value) == (
        f"task: the data file {file} must be in the data folder, got none in {tmp_path}: "
        f"set DATA_DIR to the folder that holds {file.split('/')[0]}"
    )
    assert caught.value.path == "task"


def test_damaged_data_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    file = tmp_path / images.FASHION.file
    file.parent.mkdir()
    file.write_bytes(b"PK nothing")
    with pytest.raises(MissingDataError, match="must be readable, got ValueError for its array labels"):
        parsed("fashion")
    np.savez(file, labels=np.zeros(899, np.uint8), images=np.zeros((900, 28, 28), np.uint8))
    with pytest.raises(MissingDataError, match=r"labels of \S+ must have shape \(900,\), got \(899,\)"):
        parsed("fashion")


@with_data("mnist_by_writer")
def test_checking_a_task_leaves_the_pictures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = images.archive.read
    monkeypatch.setattr(images.archive, "read", lambda path, name: (read.append(name), original(path, name))[1])
    images._numbers.cache_clear()
    images._array.cache_clear()
    for _ in range(3):
        parsed("mnist_by_writer")
    assert sorted(read) == ["labels", "writer"]
    for _ in range(2):
        built("mnist_by_writer", writers=1, test_writers=1)
    assert sorted(read) == ["images", "labels", "writer"]
