"""Categories as vectors: their numbers in the data, the tables of the model, and who refuses them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainers.data import features
from trainers.data.embeddings import Embedding
from trainers.errors import SpecError
from trainers.models import mlp
from trainers.problem import Examples
from trainers.tasks import data
from trainers.trial import sizes

CITIES, JOBS = ["Rome", "Oslo", "Lima", "Bonn"], ["cook", "poet"]
WIDTH, HIDDEN = 3, 5


def rows(count: int) -> list[str]:
    return [f"{n % 7},{CITIES[n % 4]},{JOBS[n % 2]},{'yes' if n % 4 > 1 else 'no'},c{n % 5}" for n in range(count)]


def keys(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / "people.csv").write_text("\n".join(["age,city,job,label,client", *rows(60)]) + "\n")
    task = {"name": "data", "path": str(folder / "people.csv"), "inputs": ["age", "city", "job"], "test_fraction": 0.2}
    return {**task, "embeddings": WIDTH, "model": {"name": "mlp", "hidden": [HIDDEN]}, **more}


def parameters(features: int, tables: int) -> int:
    return tables + HIDDEN * (features + 1) + 2 * (HIDDEN + 1)


@pytest.mark.parametrize(
    ("embeddings", "features", "count"),
    [
        (WIDTH, 3, parameters(1 + 2 * WIDTH, WIDTH * (4 + 2))),
        ({"city": WIDTH}, 1 + 1 + 2, parameters(1 + WIDTH + 2, WIDTH * 4)),
        ({"age": 2, "job": 1}, 1 + 4 + 1, parameters(2 + 4 + 1, 7 * 2 + 2 * 1)),
    ],
    ids=["all columns of strings", "one column", "a column of whole numbers"],
)
def test_the_number_of_parameters(tmp_path: Path, embeddings: Any, features: int, count: int) -> None:
    task = data.parse(keys(tmp_path, embeddings=embeddings), "task")
    assert task.shape == (features,)
    assert sizes.parameters(task) == count


@pytest.mark.parametrize("scale", ["none", "standardise", "unit"])
def test_a_feature_is_the_number_of_a_category(tmp_path: Path, scale: str) -> None:
    task = data.parse(keys(tmp_path, scale=scale, client=None, partition="iid", clients=1, test_fraction=0), "task")
    train = data.build(task, "float64").train
    assert isinstance(train, Examples)
    expected = [[1 + sorted(CITIES).index(CITIES[n % 4]), 1 + sorted(JOBS).index(JOBS[n % 2])] for n in range(60)]
    assert sorted(train.inputs[:, 1:].tolist()) == sorted(expected)
    assert train.inputs[:, 0].max() == {"none": 6, "unit": 1}.get(scale, train.inputs[:, 0].max())


def test_scores_are_those_of_tables_and_dense_layers(tmp_path: Path) -> None:
    task = data.parse(keys(tmp_path, scale="standardise"), "task")
    problem = data.build(task, "float64")
    model = mlp.build(problem, torch.float64, torch.device("cpu"))
    module = model.torch_module(model.start(None, 3))
    cities, jobs, first, first_bias, last, last_bias = (held.detach() for held in module.parameters())
    assert (cities.shape, jobs.shape, first.shape) == ((4, WIDTH), (2, WIDTH), (HIDDEN, 1 + 2 * WIDTH))
    inputs = torch.from_numpy(problem.train.inputs[:20].copy())
    inputs[0, 1] = 0  # not known
    vectors = []
    for place, table in ((1, cities), (2, jobs)):
        padded = torch.cat([torch.zeros(1, WIDTH, dtype=torch.float64), table])
        vectors.append(padded[inputs[:, place].long()])
    features = torch.cat([inputs[:, :1], *vectors], 1)
    expected = (features @ first.T + first_bias).relu() @ last.T + last_bias
    torch.testing.assert_close(module(inputs), expected, rtol=1e-12, atol=1e-12)


def test_categories_that_are_not_trained_are_the_zero_vector(tmp_path: Path) -> None:
    own = keys(tmp_path, test_fraction=None)
    (tmp_path / "later.csv").write_text("age,city,job,label,client\n3,Cork,cook,yes,c1\n4,Rome,poet,no,c9\n")
    test = data.build(data.parse({**own, "test": {"path": str(tmp_path / "later.csv")}}, "task"), "float64").test
    assert test is not None
    assert test.inputs.tolist() == [[3, 0, 1], [4, 4, 2]]
    with (tmp_path / "people.csv").open("a") as file:  # a city of a held-out client alone
        file.write("1,Aden,cook,yes,c0\n2,Aden,poet,no,c0\n")
    test = data.build(data.parse({**own, "test": {"clients": ["c0"]}}, "task"), "float64").test
    assert test is not None
    assert test.inputs[-2:, 1].tolist() == [0, 0]
    assert (test.inputs[:-2, 1] > 0).all()


def test_whole_numbers_have_the_same_limit_as_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "MOST_EMBEDDED", 3)
    for column in (np.arange(4), np.array(["a", "b", "c", "d"])):
        with pytest.raises(SpecError, match='column "city" must have at most 3 categories, got 4, such'):
            features.joined([[column]], ["city"], "task.inputs", (("city", 2),))


def test_whole_numbers_with_and_without_a_sign_are_not_rounded() -> None:
    known, other = np.array([2**53, 2**53 + 2]), np.array([2**53 + 1, 2**53 + 2, 2**64 - 1], np.uint64)
    parts = features.joined([[known], [other]], ["id"], "task.inputs", (("id", 2),)).parts
    assert [part[:, 0].tolist() for part in parts] == [[1, 2], [0, 2, 0]]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "softmax"}, "task.embeddings must be left out for the model softmax, which has no vectors: use mlp"),
        ({"embeddings": 0}, "task.embeddings must be in [1, 8192], got 0"),
        ({"embeddings": {"town": 2}}, 'task.embeddings must name columns of inputs, got "town"'),
        ({"embeddings": {"city": 2.5}}, "task.embeddings.city must be a whole number"),
        ({"embeddings": []}, "task.embeddings must be"),
        (
            {"inputs": ["age"]},
            'task.embeddings must be left out without columns of strings, or name columns, as in {"zip": 8}, got emb',
        ),
        (
            {"embeddings": {"share": 2}, "inputs": ["share", "city"]},
            'task.inputs: column "share" must hold a string or',
        ),
        ({"inputs": "city", "words": 3}, "task.embeddings must be left out for texts, got embeddings=3"),
    ],
)
def test_what_cannot_be_embedded(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    own = keys(tmp_path, **changes)
    table = [row.split(",") for row in (tmp_path / "people.csv").read_text().splitlines()]
    table = [[*row, "share" if not number else f"{number}.5"] for number, row in enumerate(table)]
    (tmp_path / "people.csv").write_text("\n".join(map(",".join, table)))
    with pytest.raises(SpecError) as caught:
        data.parse(own, "task")
    assert str(caught.value).startswith(error)
    assert "\n" not in str(caught.value)


def test_a_type_that_rounds_categories_is_refused(tmp_path: Path) -> None:
    problem = data.build(data.parse(keys(tmp_path), "task"), "float32")
    assert problem.model_settings["embedded"] == (Embedding(1, 4, WIDTH), Embedding(2, 2, WIDTH))
    with pytest.raises(SpecError, match=r"task\.embeddings must be left out with dtype bfloat16"):
        mlp.build(problem, torch.bfloat16, torch.device("cpu"))
