"""The task npz: a user's own arrays, every mistake in them one clear line."""

import gc
import hashlib
import json
import os
import weakref
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftline.study.check import check
from driftline.study.spec import Study
from trainers.data import table_cache
from trainers.data.table_task import TableTask
from trainers.errors import MissingDataError, SpecError
from trainers.registry import models
from trainers.tasks import npz
from trainers.trial.document import parse as parse_trial
from trainers.trial.warnings import data_remarks

from .datasets import bag, check_shape

EXAMPLES = 60
SIZES = {"ann": 12, "bob": 7, "cyd": 1, "dan": 40}


def arrays() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    labels = np.arange(EXAMPLES) % 3
    return {
        "x": generator.standard_normal((EXAMPLES, 2, 2)) + 2 * labels[:, None, None],
        "y": labels,
        "client": generator.permutation(np.repeat(list(SIZES), list(SIZES.values()))),
        "is_test": np.arange(EXAMPLES) % 5 == 0,
        "value": generator.standard_normal((EXAMPLES, 2)),
        "x_test": generator.standard_normal((10, 2, 2)),
        "y_test": np.arange(10) % 4,
        "value_test": generator.standard_normal((10, 2)),
        "client_test": np.repeat([7, 3], 5),
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "mine.npz", **arrays())
    return tmp_path


def parsed(**document: Any) -> TableTask:
    return npz.parse({"name": "npz", "path": "mine.npz", **document}, "task")


def test_one_client_for_each_name(folder: Path) -> None:
    settings = parsed(test_fraction=0)
    assert settings.examples.tolist() == [12, 7, 1, 40]
    assert (settings.test, settings.metrics, settings.classes) == ((), (), 3)
    mine = arrays()
    problem = npz.build(settings, "float64")
    check_shape(problem.train, (2, 2), [12, 7, 1, 40])
    assert problem.test is None
    rows = np.argsort(mine["client"], kind="stable")
    assert np.array_equal(problem.train.inputs, mine["x"][rows])
    assert np.array_equal(problem.train.targets, mine["y"][rows])
    assert problem.model_settings == {"classes": 3}
    assert npz.build(settings, "float32").train.inputs.dtype == np.float32


def test_a_fifth_of_each_client_is_held_out(folder: Path) -> None:
    settings = parsed()
    assert settings.document["test_fraction"] == 0.2
    assert settings.clients == 4
    assert sum(len(part) for part in settings.test) == 12
    np.testing.assert_allclose(settings.examples, [0.8 * size for size in SIZES.values()], atol=1)
    assert settings.examples[2] == 1
    problem = npz.build(settings, "float64")
    mine = arrays()
    assert bag(problem.train, problem.test) == sorted(
        np.append(x, y).tobytes() for x, y in zip(mine["x"], mine["y"], strict=True)
    )
    names = [set(mine["client"][part].tolist()) for part in settings.test]
    assert names == [{"ann"}, {"bob"}, {"dan"}]


def test_a_column_says_what_is_held_out(folder: Path) -> None:
    settings = parsed(test="is_test")
    mine = arrays()
    assert sorted(np.concatenate(settings.test).tolist()) == np.flatnonzero(mine["is_test"]).tolist()
    assert sorted(np.concatenate(settings.parts).tolist()) == np.flatnonzero(~mine["is_test"]).tolist()
    assert settings.metrics == ("test_loss", "test_accuracy")
    assert parsed(test="is_test", model="linear", targets="value").metrics == ("test_loss",)


def test_arrays_of_their_own_for_testing(folder: Path) -> None:
    settings = parsed(test={"inputs": "x_test", "targets": "y_test", "client": "client_test"})
    assert settings.classes == 4
    problem = npz.build(settings, "float64")
    check_shape(problem.train, (2, 2), [12, 7, 1, 40])
    check_shape(problem.test, (2, 2), [5, 5])
    mine = arrays()
    assert np.array_equal(problem.test.inputs, np.roll(mine["x_test"], 5, axis=0))
    together = npz.build(parsed(test={"inputs": "x_test", "targets": "y_test"}), "float64")
    check_shape(together.test, (2, 2), [10])


@pytest.mark.parametrize("partition", ["iid", "by_label", {"dirichlet": 0.3}, {"classes_per_client": 2}])
def test_other_partitions_need_no_column(folder: Path, partition: Any) -> None:
    mine = arrays()
    np.savez(folder / "mine.npz", x=mine["x"], y=mine["y"])
    settings = parsed(partition=partition, clients=6, central={"fraction": 0.25})
    rows = np.concatenate([*settings.parts, *settings.test, settings.central])
    assert np.array_equal(np.sort(rows), np.arange(EXAMPLES))
    assert (settings.clients, len(settings.test)) == (6, 1)
    assert len(settings.central) == 12


def test_classes_of_the_server_alone_have_labels_of_any_kind(folder: Path) -> None:
    mine = arrays()
    owners = np.where(mine["y"] == 1, 40 + np.arange(EXAMPLES) % 2, mine["client"])  # two clients have nothing else
    np.savez(folder / "mine.npz", x=mine["x"], y=np.array(["no", "yes", "maybe"])[mine["y"]], client=owners)
    settings = parsed(central={"classes": ["yes"]}, test_fraction=0.25)
    problem = npz.build(settings, "float64")
    assert settings.document["labels"] == ["maybe", "no", "yes"]
    assert set(problem.train.targets) == {0, 1}
    assert set(problem.central.targets) == {2}
    assert settings.clients == len(np.unique(owners)) - 2
    np.testing.assert_array_equal(problem.test.central, problem.test.targets == 2)
    assert settings.metrics == (
        "test_loss",
        "test_accuracy",
        *(f"test_{measure}_{whose}" for measure in ("loss", "accuracy") for whose in ("federated", "central")),
    )
    again = npz.parse(settings.document, "task")
    assert (again.document, again.metrics) == (settings.document, settings.metrics)
    np.savez(folder / "mine.npz", **mine)
    with pytest.raises(SpecError, match=r"task.central.classes must be left out of data without classes"):
        parsed(central={"classes": [1]}, targets="value", model="linear")


def test_as_many_clients_as_names_where_none_are_given(folder: Path) -> None:
    settings = parsed(partition="iid")
    assert settings.examples.tolist() == [12] * 4
    assert settings.document["clients"] == 4


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"partition": "iid", "central": {"fraction": 0.1}},
        {"test": "is_test"},
        {"test": {"inputs": "x_test", "targets": "y_test"}},
        {"model": "linear", "targets": "value"},
    ],
)
def test_the_filled_document_means_the_same(folder: Path, document: dict[str, Any]) -> None:
    settings = parsed(**document)
    again = npz.parse(json.loads(json.dumps(settings.document)), "task")
    assert again.document == settings.document
    for ours, theirs in ((settings.parts, again.parts), (settings.test, again.test)):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_where_the_file_is_looked_for(folder: Path) -> None:
    here = parsed()
    assert here.source.path == (folder / "mine.npz").resolve()
    assert parsed(path=str(folder / "mine.npz")).source.path == here.source.path
    (folder / "data").mkdir()
    os.rename(folder / "mine.npz", folder / "data" / "mine.npz")
    assert parsed().source.path == (folder / "data" / "mine.npz").resolve()
    assert parsed().sha256 == hashlib.sha256((folder / "data" / "mine.npz").read_bytes()).hexdigest()
    os.remove(folder / "data" / "mine.npz")
    with pytest.raises(MissingDataError) as caught:
        parsed()
    assert str(caught.value) == (
        'task.path: no file "mine.npz" in the current directory or in $DATA_DIR: '
        "give its path or set DATA_DIR; a service looks on its own computer"
    )


def test_another_file_is_refused_and_a_trial_sees_the_file_as_it_is_now(folder: Path) -> None:
    trial = {"task": {"name": "npz", "path": "mine.npz"}, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1}
    settings = parsed()
    assert parse_trial(trial).task.clients == 4
    np.savez(folder / "mine.npz", **(arrays() | {"client": np.arange(EXAMPLES) // 2}))
    assert parse_trial(trial).task.clients == EXAMPLES // 2
    with pytest.raises(SpecError, match=r"task\.path must not change, got another mine\.npz: start again"):
        npz.build(settings, "float32")
    given = settings.sha256[:50]
    with pytest.raises(SpecError, match=r'task\.sha256 must be that of the file, [0-9a-f]{64}, got "' + given):
        npz.parse(settings.document, "task")
    os.remove(folder / "mine.npz")
    with pytest.raises(MissingDataError, match=r"no file mine\.npz any more"):
        npz.build(settings, "float32")
    with pytest.raises(MissingDataError):
        parse_trial(trial)


NAN = arrays()["x"].copy()
NAN[17, 1, 0] = np.nan
BIG = arrays()["x"].copy()
BIG[3] = 1e39
Y = arrays()["y"]
CLASSES = "whole numbers or strings, one for each class"
WITHOUT = '(without such a column, set client to null, partition to "iid" and clients to their number)'
WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # arrays of the file, document, message
    ({}, {"inputs": "xx"}, 'task.inputs: no column "xx" in mine.npz: did you mean x?'),
    ({}, {"targets": "label"}, 'task.targets: no column "label" in mine.npz: known are '),
    ({}, {"client": "clientt"}, f'task.client: no column "clientt" in mine.npz: did you mean client? {WITHOUT}'),
    ({}, {"client": "user", "partition": "iid"}, 'task.client: no column "user" in mine.npz'),
    ({}, {"client": None}, "task.partition must not be natural for data without a client column: use iid, by_label"),
    ({}, {"client": None, "partition": "iid"}, "task.clients must be given (at least 1): the data has no natural"),
    (
        {"y": Y[:-1]},
        {},
        'task.targets: column "y" must have one row for each example of x, got 59 rows and 60 examples',
    ),
    ({"client": np.arange(3)}, {}, 'task.client: column "client" must have one row for each example of x, got 3 rows'),
    ({"x": NAN}, {}, 'task.inputs: column "x" must be finite, got NaN or infinity in row 17'),
    ({"x": -np.inf * np.ones((60, 2))}, {}, 'task.inputs: column "x" must be finite, got NaN or infinity in row 0'),
    ({"x": BIG}, {}, 'task.inputs: column "x" must stay below 3.4e38, got 1e+39: scale it'),
    ({"x": np.arange(60.0)}, {}, "got float64 of shape (60,): reshape it to (60, 1)"),
    ({"x": np.array(3.0)}, {}, "got float64 of shape (): reshape it to (1,)"),
    ({"x": np.ones((0, 2)), "y": Y[:0]}, {}, 'task.inputs: column "x" must hold examples, got float64 of shape (0, 2)'),
    ({"x": np.ones((60, 2)) * 1j}, {}, 'column "x" must hold numbers or strings, got complex128 of shape (60, 2)'),
    ({"x": np.full((60, 2), "a")}, {"scale": "unit"}, 'task.scale must be none for strings, got scale="unit"'),
    ({"x": np.array([{}] * 60)}, {}, 'task.inputs: array "x" must hold numbers or strings, got pickled objects, which'),
    ({"y": Y + 0.5}, {}, f'task.targets: column "y" must hold {CLASSES}, got 0.5: for numbers to predict, set model'),
    ({"y": Y * np.nan}, {}, 'task.targets: column "y" must be finite, got NaN or infinity in row 0'),
    ({"y": Y * 1j}, {}, f'task.targets: column "y" must hold {CLASSES}, got complex128 of shape (60,)'),
    ({"y": Y.astype(np.uint64) + 2**63}, {}, f'task.targets: column "y" must hold {CLASSES}, got 9.22337e+18'),
    ({}, {"labels": ["0", "1", "2"]}, "task.labels must have every label of the data, got none for 0"),
    ({}, {"labels": [0, 1]}, "task.labels must have every label of the data, got none for 2"),
    ({}, {"labels": [0, 1, 1]}, "task.labels must be a list of different strings or of different whole numbers, got"),
    ({"y": np.eye(60)}, {}, 'task.targets: column "y" must be 1-D, got float64 of shape (60, 60)'),
    ({"y": Y * 0}, {}, "task.targets must hold at least two classes, got one: give classes if there are more"),
    ({}, {"classes": 2}, "task.classes must be above the largest class, 2, got classes=2"),
    ({"client": np.ones((60, 1), int)}, {}, 'task.client: column "client" must be 1-D, a whole number or string for'),
    ({"client": np.full(60, 0.5)}, {}, "got float64 of shape (60,) with other numbers"),
    ({}, {"test": "is_tset"}, 'task.test: no column "is_tset" in mine.npz: did you mean is_test?'),
    ({}, {"test": "y"}, 'task.test: column "y" must be 1-D, true or false, got int64 of shape (60,)'),
    ({"is_test": np.zeros(60, bool)}, {"test": "is_test"}, "must mark some examples, got none of them marked"),
    ({"is_test": np.ones(60, int)}, {"test": "is_test"}, "must mark some examples, got all of them marked"),
    ({"is_test": np.ones(5, bool)}, {"test": "is_test"}, "must have one row for each example of the inputs"),
    ({}, {"test": 3}, "task.test must be the name of an array or an object of names, got test=3"),
    ({}, {"test": {"inputs": "x_test"}}, "task.test.targets must be given, a column, got targets=null"),
    ({}, {"test": {"inputs": "x", "target": "y"}}, 'unknown key "target" in task.test: did you mean targets?'),
    ({}, {"test": {"inputs": "x_test", "targets": "y"}}, 'task.test.targets: column "y" must have one row for each'),
    (
        {"x_test": np.ones((10, 3))},
        {"test": {"inputs": "x_test", "targets": "y_test"}},
        "task.test.inputs must have examples of shape (2, 2) as task.inputs has, got (3,)",
    ),
    ({}, {"test": "is_test", "test_fraction": 0.1}, "task.test_fraction must not be given beside test, got both"),
    ({}, {"test_fraction": 1}, "task.test_fraction must be in [0, 1), got test_fraction=1"),
    ({}, {"test_fraction": 1e-3, "partition": "iid"}, "task.test_fraction must set an example aside and leave one"),
    ({"client": np.arange(60)}, {}, "got test_fraction=0.2 of 60 examples (each client keeps at least one)"),
    ({}, {"path": 3}, "task.path must be a string, got path=3"),
    (
        {},
        {"path": "/nowhere/mine.npz"},
        'task.path: no file "/nowhere/mine.npz": give its path or set DATA_DIR; a service looks on its own computer',
    ),
    ({}, {"path": "array.npy"}, "task.path must be an .npz file, as numpy.savez writes it, got array.npy"),
    ({}, {"path": "cut.npz"}, "task.path must be an .npz file, as numpy.savez writes it, got cut.npz"),
    ({}, {"path": "flipped.npz"}, 'task.inputs: array "x" must be readable, got BadZipFile: save it again'),
    ({}, {"path": "other.npz"}, "task.path must be an .npz file, as numpy.savez writes it, got other.npz"),
    ({"client": np.array(["a", "b"] * 30, object)}, {}, "save it again with a dtype (strings of pandas: "),
    ({}, {"partition": "iid", "clients": 500}, "task.clients must be in [1, 48], one training example for each"),
    ({}, {"paths": "mine.npz"}, 'unknown key "paths" in task: did you mean path?'),
    (
        {},
        {"model": "quadratic"},
        'task.model must be a model of labelled examples, numbers, tags, tokens or pairs, got model="quadratic"',
    ),
    ({}, {"clients": 3}, "task.clients must be left out for the natural partition, which has 4, got clients=3"),
    (
        {},
        {"model": "linear", "targets": "value", "partition": "by_label"},
        'task.partition must be natural, iid, {"sizes": ..} without',
    ),
    ({"value": np.ones((60, 2, 2))}, {"model": "linear", "targets": "value"}, "must have shape (examples,) or"),
    (
        {"value_test": np.ones((10, 3))},
        {"model": "linear", "targets": "value", "test": {"inputs": "x_test", "targets": "value_test"}},
        "task.test.targets must have as many numbers an example as task.targets",
    ),
]


@pytest.mark.parametrize(("content", "document", "message"), WRONG)
def test_every_mistake_is_one_clear_line(
    folder: Path, content: dict[str, Any], document: dict[str, Any], message: str
) -> None:
    np.savez(folder / "mine.npz", **(arrays() | content))
    np.save(folder / "array.npy", np.ones(3))
    whole = (folder / "mine.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "flipped.npz").write_bytes(whole[:300] + bytes([whole[300] ^ 255]) + whole[301:])
    with zipfile.ZipFile(folder / "other.npz", "w") as archive:
        archive.writestr("x", "no array")
    with pytest.raises(SpecError) as caught:
        parsed(**document)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.path.startswith("task")


def test_the_arrays_of_a_large_file_are_not_kept_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_cache, "_HELD", 0)
    file = tmp_path / "x.npz"
    np.savez(file, x=np.ones((4, 2), np.float32), y=np.arange(4) % 2, client=np.arange(4) // 2)
    settings = npz.parse({"name": "npz", "path": str(file)}, "task")
    held = weakref.ref(table_cache.load(settings.source, settings.names, (), settings.given, "task"))
    assert held() is not None, "kept from parsing to building"
    problem = npz.build(settings, "float32")
    gc.collect()
    assert held() is None
    assert npz.build(settings, "float32").train.inputs.tolist() == problem.train.inputs.tolist()


def test_many_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    order = np.random.default_rng(0).permutation(100_000)
    file = tmp_path / "x.npz"
    np.savez(file, x=order[:, None].astype(np.float32), y=order % 2, client=order)
    settings = npz.parse({"name": "npz", "path": str(file), "test_fraction": 0}, "task")
    assert settings.clients == 100_000
    problem = npz.build(settings, "float32")
    assert np.array_equal(problem.train.inputs[:, 0], np.arange(100_000, dtype=np.float32))


@pytest.mark.parametrize(
    ("content", "document", "note"),
    [
        ({}, {}, None),
        ({"y": Y + 1}, {"classes": 4}, "task.targets: the classes begin at 1: no example of class 0; number"),
        ({"y": Y + 1}, {}, "task.labels: class numbers are in the order of the labels 1, 2, 3"),
        ({"y": Y**3}, {"classes": 9}, "3 of 9 classes have examples: no example of class 2, 3, 4, 5, 6 and 1 more;"),
        ({}, {"test": {"inputs": "x_test", "targets": "y_test"}}, "task.test: class 3 is tested and never trained"),
        (
            {"x": np.arange(240).reshape(60, 2, 2).astype(np.uint8)},
            {},
            "task.inputs: images are whole numbers in 0..255",
        ),
        ({"x": np.arange(240.0).reshape(60, 1, 2, 2)}, {}, "which no model scales: set scale to unit"),
        ({"x": np.arange(240, dtype=np.uint16).reshape(60, 1, 2, 2) * 17}, {}, "0..4063, which no model scales"),
        ({"x": np.arange(240, dtype=np.uint8).reshape(60, 4)}, {}, "task.inputs: inputs are whole numbers in 0..255"),
        ({"x": np.arange(240).reshape(60, 4)}, {"model": "words"}, None),
        ({"x": np.arange(240).reshape(60, 2, 2)}, {"model": "words"}, None),
        ({"x": np.arange(240).reshape(60, 2, 2) / 255}, {}, None),
        ({"x": np.arange(240).reshape(60, 4) % 17}, {}, None),
        ({"client": arrays()["client"] == "no one"}, {}, "task: there is one client, so that no models are averaged"),
    ],
)
def test_what_will_disappoint_is_a_note(
    folder: Path, content: dict[str, Any], document: dict[str, Any], note: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models()._loaded, "words", models()["mlp"])
    monkeypatch.setitem(models()._added, "words", models()._added.get("words"))
    np.savez(folder / "mine.npz", **(arrays() | content))
    notes = data_remarks(parsed(**document), drawn(None))
    assert len(notes) == (note is not None), notes
    assert note is None or note in notes[0]


def drawn(batch_size: int | None, batching: str = "shuffled") -> dict[str, Any]:
    return {"batch_size": batch_size, "batching": batching, "adaptation": None}


def test_batches_larger_than_most_clients_are_a_note(folder: Path) -> None:
    assert data_remarks(parsed(), drawn(7)) == []
    (note,) = data_remarks(parsed(), drawn(8))
    assert note.startswith("batch_size is 8, more than most clients have (the median is 7.5 examples): leave it out")
    assert "leave it out" not in data_remarks(parsed(), drawn(8, "by_class"))[0]  # where it must be given
    study = Study(
        name="mine",
        task={"name": "npz", "path": "mine.npz"},
        methods=[{"name": "fedavg"}, {"label": "b", "name": "fedavg", "space": RATES}],
        objective={"quality": "test_accuracy", "cost": "rounds"},
        budget={"trials_per_method": 4, "rounds": 10, "seeds": 0},
        batch_size=1000,
    )
    notes = check(study)
    assert notes[0].startswith("methods[1].space.server_lr is 20 times client_lr, at least 10: it multiplies a sum")
    assert notes[1].startswith("batch_size is 1000, more than most clients have")
    assert len(notes) == 2


RATES = {"client_lr": {"choice": [0.01, 0.05]}, "server_lr": 1.0, "local_steps": 5}
