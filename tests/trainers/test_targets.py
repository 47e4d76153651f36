"""Kinds of targets and their measures: tags from every form of data, and each measure as scikit-learn computes it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn import metrics as sklearn

from driftline.study.directions import direction
from trainers.data.table_task import TableTask
from trainers.data_description import describe
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.models._losses import SigmoidCrossEntropy
from trainers.models._measures import ByClient, Everything, auc, over_clients
from trainers.problem import Examples, Problem
from trainers.registry import models
from trainers.target_kinds import KINDS, REPORTS, RISING
from trainers.tasks import data
from trainers.trial.document import parse

from . import table_forms

CPU = torch.device("cpu")
TRIALS = 2
SIZES = np.array([7, 1, 30, 12])
NAMES = ("blue", "green", "red")
LISTS = [["red"], ["blue", "red"], [], ["green"], ["red", "green"], ["blue"], ["red"], [], ["green", "blue"], ["red"]]
MATRIX = np.array([[name in tags for name in NAMES] for tags in LISTS])
INPUTS = np.round(np.random.default_rng(0).standard_normal((len(LISTS), 2)), 3)
CLIENTS = np.array(["ann", "bob"])[np.arange(len(LISTS)) % 2]


def examples(kind: Any, outputs: int) -> Examples:
    generator, rows = np.random.default_rng(1), int(SIZES.sum())
    targets = generator.integers(0, outputs, rows) if kind == "classes" else generator.random((rows, outputs)) < 0.4
    return Examples(generator.standard_normal((rows, 4)), targets, np.cumsum(SIZES) - SIZES, SIZES, kind)


def measured(name: str, test: Examples, settings: dict[str, Any], reports: list[str]) -> tuple[Any, list[Any]]:
    """(metrics of two models, their scores of the test examples, at which scikit-learn clips no probability)."""
    settings = {**settings, **({"hidden": [4]} if name == "mlp" else {})}
    built: Any = models()[name].build(Problem(name, test, test=test, model_settings=settings), torch.float64, CPU)
    generator = torch.Generator().manual_seed(2)
    true = torch.randn(TRIALS, built.layout.count, generator=generator, dtype=torch.float64)
    params = built.layout.row(true / 2)[:, None]
    inputs = torch.as_tensor(test.inputs)
    scores = [built.torch_module(row)(inputs).detach().numpy() for row in params[:, 0]]
    return built.evaluate(params, reports), scores


def by_client(test: Examples, measure: Callable[[slice], float | None]) -> NDArray[np.float64]:
    slices = [slice(first, first + size) for first, size in zip(test.offsets, test.sizes, strict=True)]
    values = [measure(rows) for rows in slices]
    return np.array([value for value in values if value is not None])


def check_statistics(found: Any, trial: int, measure: str, values: NDArray[np.float64]) -> None:
    wanted = {"mean": values.mean(), "std": values.std()}
    wanted["worst"] = values.min() if measure in RISING else values.max()
    wanted |= {f"p{percent}": np.percentile(values, percent) for percent in range(10, 100, 10)}
    own = {name: float(found[f"client_{measure}_{name}"][trial]) for name in wanted}
    assert own == pytest.approx(wanted, rel=1e-12, abs=1e-13)


def close(value: float | None) -> Any:
    assert value is not None
    return pytest.approx(value, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_measures_of_tags_are_those_of_scikit_learn(name: str) -> None:
    test = examples("tags", 5)
    test.targets[test.offsets[1]] = False  # the second client has no tag: neither recall nor F1 where none is predicted
    reports = [f"client_{measure}" for measure in KINDS["tags"].per_client]
    found, scores = measured(name, test, {"at": 2}, reports)
    for trial, score in enumerate(scores):
        guess, first = score > 0, np.zeros_like(test.targets)
        np.put_along_axis(first, np.argsort(-score, 1, kind="stable")[:, :2], True, 1)
        probabilities = 1 / (1 + np.exp(-score))

        def loss(rows: slice, shares: Any = probabilities) -> float:
            columns = zip(test.targets[rows].T, shares[rows].T, strict=True)
            return float(sum(sklearn.log_loss(true, share, labels=[False, True]) for true, share in columns))

        def f1(rows: slice, own: Any = guess) -> float | None:
            some = test.targets[rows].any() or own[rows].any()
            return sklearn.f1_score(test.targets[rows], own[rows], average="micro") if some else None

        def recall(rows: slice, own: Any = first) -> float | None:
            true = test.targets[rows]
            return sklearn.recall_score(true, own[rows], average="micro") if true.any() else None

        def precision(rows: slice, own: Any = first) -> float:
            return float(sklearn.precision_score(test.targets[rows], own[rows], average="micro", zero_division=0))

        measures = {"loss": loss, "micro_f1": f1, "recall_at_k": recall, "precision_at_k": precision}
        for measure, of in measures.items():
            assert float(found[f"test_{measure}"][trial]) == close(of(slice(None)))
            check_statistics(found, trial, measure, by_client(test, of))


@pytest.mark.parametrize("name", ["softmax", "mlp"])
@pytest.mark.parametrize("classes", [2, 3])
def test_measures_of_classes_are_those_of_scikit_learn(name: str, classes: int) -> None:
    test = examples("classes", classes)
    asked = ["macro_f1", "auc"] if classes == 2 else ["macro_f1"]
    reports = [*asked, *(f"client_{measure}" for measure in ("loss", "accuracy", *asked))]
    found, scores = measured(name, test, {"classes": classes}, reports)
    for trial, score in enumerate(scores):
        guess, shares = score.argmax(1), np.exp(score) / np.exp(score).sum(1, keepdims=True)

        def loss(rows: slice, own: Any = shares) -> float:
            return float(sklearn.log_loss(test.targets[rows], own[rows], labels=range(classes)))

        def accuracy(rows: slice, own: Any = guess) -> float:
            return float(sklearn.accuracy_score(test.targets[rows], own[rows]))

        def macro_f1(rows: slice, own: Any = guess) -> float:
            return float(sklearn.f1_score(test.targets[rows], own[rows], average="macro", zero_division=0))

        def auc(rows: slice, own: Any = score) -> float | None:
            both = len(np.unique(test.targets[rows])) == 2
            return sklearn.roc_auc_score(test.targets[rows], own[rows, 1] - own[rows, 0]) if both else None

        measures = {"loss": loss, "accuracy": accuracy, "macro_f1": macro_f1, "auc": auc}
        for measure in ("loss", "accuracy", *asked):
            assert float(found[f"test_{measure}"][trial]) == close(measures[measure](slice(None)))
            check_statistics(found, trial, measure, by_client(test, measures[measure]))


def test_a_loss_that_is_no_number_is_left_out_of_no_statistic() -> None:
    values = torch.tensor([[0.5, np.nan, 1.0]], dtype=torch.float64)
    assert all(bool(value.isnan()) for value in over_clients("loss", values).values())
    assert float(over_clients("auc", values)["client_auc_worst"]) == 0.5


def test_auc_counts_equal_scores_as_half_a_pair() -> None:
    test, generator = examples("classes", 2), np.random.default_rng(3)
    margins = generator.integers(-2, 3, len(test.targets)).astype(float)
    columns = {name: torch.as_tensor(held)[None] for name, held in (("margin", margins), ("class", test.targets))}
    assert float(auc().of(columns, Everything())[0, 0]) == close(sklearn.roc_auc_score(test.targets, margins))
    own = by_client(
        test,
        lambda rows: sklearn.roc_auc_score(test.targets[rows], margins[rows]) if rows.stop - rows.start > 1 else None,
    )
    assert auc().of(columns, ByClient(test.offsets, test.sizes))[0, [0, 2, 3]].numpy() == pytest.approx(own, rel=1e-12)


def test_loss_of_tags_keeps_its_digits_for_large_scores() -> None:
    scores, wanted = torch.tensor([[700.0, -40.0, 40.0, -700.0]], dtype=torch.float64), torch.tensor([[1, 0, 1, 1]])
    exact = 2 * np.log1p(np.exp(-40.0)) + 700
    assert float(SigmoidCrossEntropy().losses(scores, wanted, -1)) == pytest.approx(exact, rel=1e-15)
    right = torch.tensor([[1, 0, 1, 0]])
    assert float(SigmoidCrossEntropy().losses(scores, right, -1)) == pytest.approx(2 * np.exp(-40.0), rel=1e-12)


def write(folder: Path, form: str) -> dict[str, Any]:
    """Writes the examples of `LISTS`; returns the keys of the task."""
    path, tags = folder / f"data.{form}", MATRIX if form == "npz" else LISTS
    columns = {"a": INPUTS[:, 0].tolist(), "b": INPUTS[:, 1].tolist(), "client": CLIENTS.tolist(), "tags": tags}
    table_forms.write(path, columns)
    keys: dict[str, Any] = {"name": "data", "path": str(path), "inputs": ["a", "b"], "targets": "tags", "kind": "tags"}
    return {**keys, "model": "logistic", "test_fraction": 0.4, **({"separator": "|"} if form == "csv" else {})}


def trial(task: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "task": task,
        "method": {"name": "fedavg", "client_lr": 0.5, "server_lr": 0.5, "local_steps": 2},
        "batch_size": 2,
        "rounds": 2,
        "dtype": "float64",
        **changes,
    }


def lines_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return Pack.from_spec(parse(document), device="cpu").advance()


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv", "npz"])
def test_tags_of_every_form_are_the_same_examples(tmp_path: Path, form: str) -> None:
    keys = write(tmp_path, form)
    task = data.parse(keys, "task")
    assert isinstance(task, TableTask)
    assert (task.outputs, task.kind, task.metrics) == (3, "tags", KINDS["tags"].metrics)
    assert task.document["labels"] == (None if form == "npz" else list(NAMES))
    assert data.parse(task.document, "task").document == task.document
    train = data.build(task, "float64").train
    assert isinstance(train, Examples)
    row = {tuple(inputs): tags for inputs, tags in zip(INPUTS.tolist(), MATRIX.tolist(), strict=True)}
    assert [row[tuple(inputs)] for inputs in train.inputs.tolist()] == train.targets.tolist()
    last = lines_of(trial(keys, report=["client_recall_at_k", "client_loss"]))[-1]
    assert last["test_loss"] > 0
    assert 0 <= last["test_micro_f1"] <= 1
    assert last["client_recall_at_k_worst"] <= last["client_recall_at_k_mean"] == last["test_recall_at_k"] == 1


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_column_of_lists_is_described_as_tags(tmp_path: Path, form: str) -> None:
    write(tmp_path, form)
    found = describe(str(tmp_path / f"data.{form}"), {"inputs": ["a", "b"], "test_fraction": 0.4})
    assert {key: found.task[key] for key in ("kind", "model")} == {"kind": "tags", "model": "logistic"}
    assert list(found.labels) == list(NAMES)
    assert found.counts.sum() <= MATRIX.sum()
    assert found.skew is not None
    assert 0 < found.skew < 1
    assert [(column.what, column.first) for column in found.columns if column.name == "tags"] == [
        ("3 different tags", '["red"]')
    ]


def test_the_most_frequent_tags_are_kept(tmp_path: Path) -> None:
    task = data.parse({**write(tmp_path, "jsonl"), "tags": 2}, "task")
    assert task.document["labels"] == ["blue", "red"]  # as many as green, and before it
    assert (task.outputs, task.document["at"]) == (2, 2)
    assert data.parse(task.document, "task").document == task.document
    assert data.build(task, "float64").train.targets.shape[1] == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("form", "changes", "error"),
    [
        ("csv", {"separator": None}, r"task.separator must be given for a column of text"),
        ("csv", {"separator": ""}, r"task.separator must be a string such as"),
        ("jsonl", {"labels": ["blue", "green"]}, r'task.labels must have every tag of the data, got none for "red"'),
        ("jsonl", {"labels": [1, 2]}, r"task.labels must have every tag of the data"),
        ("jsonl", {"at": 4}, r"task.at must be at most 3, the number of tags, got at=4"),
        ("jsonl", {"classes": 3}, r"task.classes must be left out for tags, got classes=3: give tags"),
        ("jsonl", {"model": "softmax"}, r'task.kind must be classes for the model softmax, got kind="tags"'),
        ("jsonl", {"kind": None, "model": "softmax", "at": 2}, r"task.at must be left out for classes"),
        ("jsonl", {"targets": "a"}, r'task.targets: column "a" must hold lists of tags'),
        ("npz", {"tags": 2}, r"task.tags must be left out for a matrix, whose columns are the tags"),
        ("npz", {"partition": "by_label", "clients": 2}, r"task.partition must be natural, iid, .* without labels"),
    ],
)
def test_invalid_tags_are_refused(tmp_path: Path, form: str, changes: dict[str, Any], error: str) -> None:
    with pytest.raises(SpecError, match=error):
        data.parse({**write(tmp_path, form), **changes}, "task")


def test_examples_without_any_tag_are_refused(tmp_path: Path) -> None:
    rows = [{"x": [0.5], "tags": [], "client": "ann"}] * 3
    (tmp_path / "none.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keys = {"name": "data", "path": str(tmp_path / "none.jsonl"), "targets": "tags", "model": "logistic"}
    with pytest.raises(SpecError, match=r"task.targets must hold tags, got none in all 3 examples"):
        data.parse(keys, "task")
    (tmp_path / "none.jsonl").write_text('{"x": [1], "tags": ["a"]}\n{"x": [1], "tags": null}')
    with pytest.raises(SpecError, match=r'column "tags" must have a value in every row, got none in 1 of 2 rows'):
        data.parse({**keys, "partition": "iid", "clients": 1}, "task")


def test_tag_regression_for_stack_overflow_has_the_published_number_of_parameters() -> None:
    """Of Reddi et al. 2021: 10,000 words, 500 tags."""
    few = Examples(np.zeros((2, 10_000), np.float32), np.zeros((2, 500), bool), np.array([0]), np.array([2]), "tags")
    assert models()["logistic"].build(Problem("", few), torch.float32, torch.device("cpu")).layout.count == 5_000_500


def test_train_accuracy_is_that_of_all_training_data() -> None:
    task = {"name": "digits", "clients": 5, "model": "softmax"}
    lines = lines_of(trial(task, report=["train_accuracy", "macro_f1"], batch_size=20))
    assert 0.3 < lines[-1]["train_accuracy"] < 1
    everything = {**task, "clients": 1}
    start = lines_of(trial(everything, report=["train_accuracy"], rounds=1, batch_size=20))[0]
    assert start["train_accuracy"] == pytest.approx(lines[0]["train_accuracy"], rel=1e-12)


@pytest.mark.parametrize(
    ("task", "report", "error"),
    [
        ({"name": "digits", "clients": 5}, "auc", r"report must not contain auc: it needs a task with two classes"),
        ({"name": "digits", "clients": 5}, "client_loss", r"it needs a task with test_loss and at least two test cl"),
        ({"name": "digits", "clients": 5}, "client_recall_at_k", r"it needs a task with test_recall_at_k"),
        ({"name": "quadratic", "problem": "random", "clients": 3, "dimension": 2}, "macro_f1", r"with test_accuracy"),
        ({"name": "quadratic", "problem": "random", "clients": 3, "dimension": 2}, "train_accuracy", r"not report"),
    ],
)
def test_reports_that_a_task_cannot_have_are_refused(task: dict[str, Any], report: str, error: str) -> None:
    with pytest.raises(SpecError, match=error):
        parse(trial(task, report=[report]))


def test_directions_of_all_measures() -> None:
    for kind in KINDS.values():
        for measure in (*kind.measures, *kind.on_demand):
            rises = "rises" if measure in RISING else "falls"
            assert direction(f"test_{measure}") == rises, measure
    for report, columns in REPORTS.items():
        for column in columns:
            falls = column.endswith("_std") or report.removeprefix("client_") not in RISING
            assert direction(column) == ("falls" if falls else "rises"), column
    assert direction("train_accuracy") == "rises"


@pytest.fixture
def every_warning() -> Iterator[None]:
    """torch says some warnings once in a process only."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("every_warning")
@pytest.mark.parametrize(
    ("kind", "model"), [("classes", "softmax"), ("classes", "mlp"), ("tags", "logistic"), ("tags", "mlp")]
)
def test_arrays_of_files_cannot_be_written_and_nothing_warns_of_it(tmp_path: Path, kind: str, model: str) -> None:
    targets = {"classes": np.arange(len(LISTS)) % 3, "tags": MATRIX}[kind]
    clients = np.arange(len(LISTS)) % 2
    np.savez(tmp_path / "rows.npz", x=INPUTS, y=targets, client=np.sort(clients), x_test=INPUTS, y_test=targets)
    task = {"name": "npz", "path": str(tmp_path / "rows.npz"), "kind": kind, "model": model}
    task["test"] = {"inputs": "x_test", "targets": "y_test"}
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    pack = Pack.from_spec(
        parse({"task": task, "method": method, "rounds": 1, "batch_size": 2, "seed": 0}), device="cpu"
    )
    assert np.isfinite(pack.advance(1)[-1]["train_loss"])
