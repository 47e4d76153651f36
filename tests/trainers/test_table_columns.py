"""The task data: which columns it takes, categories, labels, scales, test examples, and an answer to every mistake."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers.data.table_task import TableTask
from trainers.errors import SpecError
from trainers.tasks import data

ROWS = [
    # age, city, income, bought, client
    (20, "Rome", 1.5, "yes", "ann"),
    (30, "Oslo", 2.5, "no", "ann"),
    (40, "Rome", 3.5, "no", "bob"),
    (50, "Lima", 4.5, "yes", "bob"),
    (60, "Oslo", 9.0, "yes", "cyd"),
    (70, "Lima", 8.0, "no", "cyd"),
]
HEADER = "age,city,income,bought,client"
TEXT = "\n".join([HEADER, *(",".join(map(str, row)) for row in ROWS)]) + "\n"
CITIES = ["Lima", "Oslo", "Rome"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text(TEXT)
    return tmp_path


def parsed(**document: Any) -> TableTask:
    return data.parse({"name": "data", "path": "own.csv", "targets": "bought", "test_fraction": 0, **document}, "task")


def test_numbers_stay_and_categories_are_one_hot(folder: Path) -> None:
    settings = parsed()
    assert settings.document["inputs"] == ["age", "city", "income"]
    assert settings.document["labels"] == ["no", "yes"]
    assert settings.clients == 3
    problem = data.build(settings, "float64")
    assert problem.train.inputs.tolist() == [
        [age, *(float(city == name) for name in CITIES), income] for age, city, income, _, _ in ROWS
    ]
    assert problem.train.targets.tolist() == [int(bought == "yes") for *_, bought, _ in ROWS]


def test_scales_are_fitted_to_training_clients_and_leave_categories(folder: Path) -> None:
    settings = parsed(scale="unit", test_fraction=None, test={"clients": ["cyd"]})
    problem = data.build(settings, "float64")
    assert problem.train.inputs[:, [0, 4]].tolist() == [[0, 0], [1 / 3, 1 / 3], [2 / 3, 2 / 3], [1, 1]]
    assert problem.train.inputs[:, 1:4].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert problem.test is not None
    np.testing.assert_allclose(problem.test.inputs[:, 0], [4 / 3, 5 / 3])
    assert problem.test.inputs[:, 1:4].tolist() == [[0, 1, 0], [1, 0, 0]]


def test_labels_in_the_order_that_is_given(folder: Path) -> None:
    settings = parsed(labels=["yes", "no", "maybe"])
    assert settings.classes == 3
    assert data.build(settings, "float64").train.targets.tolist() == [int(bought == "no") for *_, bought, _ in ROWS]


@pytest.mark.parametrize("wanted", [0.34, ["bob"], ("bob",)])
def test_clients_are_held_out(folder: Path, wanted: Any) -> None:
    settings = parsed(test_fraction=None, test={"clients": wanted})
    assert (settings.clients, [len(rows) for rows in settings.test]) == (2, [2])
    if not isinstance(wanted, float):
        assert settings.test[0].tolist() == [2, 3]


def test_a_file_of_test_examples_shares_categories_and_labels(folder: Path) -> None:
    (folder / "later.csv").write_text(f"{HEADER}\n80,Bonn,1,maybe,ann\n90,Rome,2,no,eve\n")
    settings = parsed(test_fraction=None, test={"path": "later.csv"})
    assert settings.document["labels"] == ["maybe", "no", "yes"]
    problem = data.build(settings, "float64")
    assert problem.test is not None
    assert problem.test.inputs.tolist() == [[80, 1, 0, 0, 0, 1], [90, 0, 0, 0, 1, 2]]
    assert problem.test.sizes.tolist() == [1, 1], "ann is a client for training and for testing, as in LEAF's files"
    stamp = data.stamp(settings.document)
    (folder / "later.csv").write_text(f"{HEADER}\n80,Bonn,1,yes,ann\n")
    assert data.stamp(settings.document) != stamp
    with pytest.raises(SpecError, match=r"task\.path must not change"):
        data.build(settings, "float64")


def test_numbers_to_predict(folder: Path) -> None:
    settings = parsed(targets="income", inputs=["age"], model="linear")
    assert (settings.classes, settings.document["labels"]) == (None, None)
    assert data.build(settings, "float64").train.targets.tolist() == [row[2] for row in ROWS]


def test_a_column_groups_the_labels(folder: Path) -> None:
    """Its lists are stored in its place, so that the document is read again without the column."""
    rows = [f"{number},{number % 4},{'odd' if number % 2 else 'even'}" for number in range(80)]
    (folder / "own.csv").write_text("\n".join(["x1,fine,coarse", *rows]) + "\n")
    partition = {"dirichlet": [0.05, 1000], "groups": "coarse"}
    keys = {"targets": "fine", "inputs": ["x1"], "clients": 8, "client": None}
    settings = parsed(partition=partition, **keys)
    assert settings.document["partition"] == {"dirichlet": [0.05, 1000.0], "groups": [[0, 2], [1, 3]]}
    assert np.mean([np.bincount(rows % 2).max() / len(rows) for rows in settings.parts]) > 0.8
    again = data.parse(settings.document, "task")
    assert all(np.array_equal(one, other) for one, other in zip(settings.parts, again.parts, strict=True))
    assert data.build(settings, "float64").train.inputs.shape == (80, 1)
    with pytest.raises(
        SpecError, match=r'task\.partition\.groups: no column "coarsest" in own\.csv: did you mean coarse'
    ):
        parsed(partition={**partition, "groups": "coarsest"}, **keys)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    # content of own.csv, keys, message
    (TEXT.replace("40", ""), {}, 'task.inputs: column "age" must have a value in every row, got none in 1 of 6'),
    (TEXT.replace("Lima", "NA"), {}, 'column "city" must have a value in every row, got none in 2 of 6'),
    (TEXT.replace(",bob\n", ",\n"), {}, 'task.client: column "client" must have a value in every row, got none in 2'),
    (TEXT.replace("40,", "40,1,"), {}, "task.path: own.csv: CSV parse error: Row #4: Expected 5 columns, got 6"),
    (TEXT.replace("40,", ""), {}, "task.path: own.csv: CSV parse error: Row #4: Expected 5 columns, got 4"),
    (
        TEXT.replace("Rome", "2024-01-31").replace("Oslo", "2024-02-01").replace("Lima", "2023-01-01"),
        {},
        "got dates (d",
    ),
    *(
        (TEXT.replace("Rome", one).replace("Oslo", other).replace("Lima", third), {}, f'got dates such as "{least}"')
        for one, other, third, least in (
            ("31.1.2024", "1.12.1999", "02.01.2023", "02.01.2023"),
            ("2024/1/31 10:05", "2024/2/1 9:00", "2023/1/1 0:00", "2023/1/1 0:00"),
        )
    ),
    (TEXT.replace("age", "city", 1), {}, 'own.csv: must have different names of columns, got "city" twice'),
    (TEXT.replace("age", "", 1), {}, "must have a name for each column in its first row, got none for column 1"),
    ("1,2,3\n4,5,6\n", {}, 'must have the columns\' names in its first row, got the numbers "1,2,3"'),
    ("", {}, "task.path: own.csv: must have a first row of names, got an empty one"),
    (HEADER + "\n", {}, "must hold examples"),
    ("a\0b\n1", {}, "task.path: own.csv: must be text, got bytes"),
    (TEXT.replace("Rome", "R\xf6m"), {}, 'column "city" must hold text in UTF-8, got other bytes: save'),
    (TEXT, {"targets": None}, "task.targets must be given, one of the columns age, city, income, bought, client"),
    (TEXT, {"targets": "buys"}, 'task.targets: no column "buys" in own.csv: known are age, bought'),
    (
        TEXT,
        {"targets": "income"},
        "must hold whole numbers or strings, one for each class, got 1.5: for numbers to predic",
    ),
    (TEXT, {"inputs": ["age", "agee"]}, 'task.inputs: no column "agee" in own.csv: did you mean age?'),
    (TEXT, {"inputs": ["age", "age"]}, "task.inputs must be a column or a list of different columns, got inputs=["),
    (TEXT, {"inputs": []}, "task.inputs must be a column or a list of different columns, got inputs=[]"),
    (TEXT, {"inputs": "age"}, "reshape it to (6, 1), or give the list [age]"),
    (TEXT, {"labels": ["yes", "no"], "classes": 1}, "task.classes must be at least 2, got classes=1"),
    (TEXT, {"scale": "half"}, "task.scale must be one of none, unit, standardise"),
    (TEXT, {"test_fraction": None, "test": {"clients": 1.5}}, "task.test.clients must be in (0, 1), or a list"),
    (TEXT, {"test_fraction": None, "test": {"clients": 0.1}}, "must set a client aside and leave one, got clients=0"),
    (TEXT, {"test_fraction": None, "test": {"clients": ["bo"]}}, 'clients: no client "bo": did you mean bob?'),
    (
        TEXT,
        {"test_fraction": None, "test": {"clients": ["ann"]}, "client": None, "partition": "iid", "clients": 2},
        "task.test.clients must be left out of data without a client column",
    ),
    (TEXT, {"test_fraction": None, "test": {"path": "none.csv"}}, 'task.test.path: no file or folder "none.csv"'),
    (TEXT, {"test_fraction": None, "test": {"path": "own.csv", "mask": 1}}, 'unknown key "mask" in task.test'),
    (
        "name,bought,client\n" + "".join(f"n{number},{number % 2},{number % 3}\n" for number in range(1100)),
        {},
        'task.inputs: column "name" must have at most 1000 categories, got 1100, such as "n0": give it a width in',
    ),
]


def test_versions_and_addresses_are_no_dates(folder: Path) -> None:
    text = TEXT.replace("Rome", "1.10.3").replace("Oslo", "192.168.1.1").replace("Lima", "2.10.22")
    (folder / "own.csv").write_text(text, encoding="utf-8")
    assert parsed(inputs=["age", "city"]).shape == (4,)


@pytest.mark.parametrize(("content", "keys", "message"), WRONG, ids=range(len(WRONG)))
def test_every_mistake_has_an_answer(folder: Path, content: str, keys: dict[str, Any], message: str) -> None:
    (folder / "own.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(SpecError) as caught:
        parsed(**keys)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
