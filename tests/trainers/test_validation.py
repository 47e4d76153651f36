"""Examples for validation: which they are, what is measured on them, and what stays as it is without them."""

import numpy as np
import pytest

from driftline.study.spec import Study
from trainers.engine.packs.pack import Pack
from trainers.registry import tasks
from trainers.target_kinds import STATISTICS, reporting
from trainers.trial.document import parse

from .documents import wrong

CLASSES, INPUTS = 3, 4
SIZES = [7, 33, 5, 8, 1, 20]
REPORTED = ["client_accuracy", "client_loss", "macro_f1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """(all examples by client, others to test on), a column of numbers tells the examples apart."""
    folder, generator = tmp_path_factory.mktemp("validation"), np.random.default_rng(1)
    for name, sizes in (("mine", SIZES), ("others", [9, 4])):
        x = generator.normal(size=(sum(sizes), INPUTS))
        x[:, 0] = np.arange(len(x)) + (1000 if name == "others" else 0)
        y = np.arange(len(x)) % CLASSES
        np.savez(folder / f"{name}.npz", x=x, y=y, client=np.repeat([f"c{i}" for i in range(len(sizes))], sizes))
    return folder


def trial(files, **changes):
    task = {"name": "npz", "path": str(files / "mine.npz"), "validation": 0.25, **changes.pop("task", {})}
    method = {"name": "fedavg", "client_lr": 0.001, "server_lr": 0.001, "local_steps": 2}
    keys = {"rounds": 2, "dtype": "float64", "report": ["params"], **changes}
    return {"task": {key: value for key, value in task.items() if value is not None}, "method": method, **keys}


def problem(document):
    spec = parse(document)
    return spec, tasks()[spec.task_name].build(spec.task, "float64")


def numbers(inputs):
    return inputs[:, 0].astype(int).tolist()


def sides(held):
    """Numbers of the examples that train, test and validate."""
    first = held.test.offsets[held.test.tests]
    return numbers(held.train.inputs), numbers(held.test.inputs[:first]), numbers(held.test.inputs[first:])


def test_a_share_of_each_clients_examples_is_set_aside_and_the_test_examples_stay(files):
    _, plain = problem(trial(files, task={"validation": None}))
    spec, held = problem(trial(files))
    train, test, validation = sides(held)
    assert test == numbers(plain.test.inputs)
    assert sorted(train + validation) == sorted(numbers(plain.train.inputs))
    assert len(held.train.sizes) == len(SIZES)
    assert held.train.sizes.min() >= 1
    assert len(validation) == pytest.approx(0.25 * len(plain.train.inputs), abs=1.5)
    assert spec.task.examples.sum() == len(train)
    again = problem(trial(files, task={"split_seed": 1}))[1]
    assert sides(again)[2] != validation


@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [5]}])
@pytest.mark.parametrize("test", ["fraction", "file", "clients", "validation file"])
def test_metrics_are_those_of_a_study_that_tests_on_these_examples(files, model, test):
    more = {
        "fraction": {},
        "file": {"test": {"path": str(files / "others.npz")}},
        "clients": {"test": {"clients": ["c1", "c3"]}},
        "validation file": {
            "validation": {"path": str(files / "others.npz")},
            "test": {"clients": ["c1", "c3"]},
            "scale": "standardise",
        },
    }[test]
    document = trial(files, task={"model": model, **more}, report=["params", *REPORTED])
    spec, held = problem(document)
    assert parse(spec.canonical).canonical == spec.canonical
    first = held.test.offsets[held.test.tests]
    line = Pack.from_spec(spec).advance()[-1]
    parts = [
        (held.train.inputs, held.train.targets, held.train.sizes),
        (held.test.inputs[first:], held.test.targets[first:], held.test.sizes[held.test.tests :]),
    ]
    x, y = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    owners = np.concatenate([np.repeat(np.arange(len(part[2])), part[2]) for part in parts])
    np.savez(
        files / "again.npz", x=x, y=y, client=[f"c{i}" for i in owners], test=np.arange(len(x)) >= len(parts[0][0])
    )
    task = {"name": "npz", "path": str(files / "again.npz"), "test": "test", "classes": CLASSES, "model": model}
    other = Pack.from_spec(parse({**document, "task": task})).advance()[-1]
    assert line["params"] == pytest.approx(other["params"], rel=1e-12)
    of_validation = [metric for metric in line if metric.startswith("validation_")]
    assert len(of_validation) == 3 + 2 * len(STATISTICS)
    for metric in of_validation:
        assert line[metric] == pytest.approx(other[reporting(metric)], rel=1e-12), metric
    assert any(line[metric] != line[reporting(metric)] for metric in of_validation)


def marked(folder, name="marked", **columns):
    """The examples of all clients, and columns that mark some."""
    with np.load(folder / "mine.npz") as held:
        np.savez(folder / f"{name}.npz", **held, **columns)
    return str(folder / f"{name}.npz")


@pytest.mark.parametrize("test", ["fraction", "column", "clients", "file"])
def test_a_column_marks_the_examples(files, test):
    rows = np.arange(sum(SIZES))
    path = marked(files, fold=rows % 4 == 1, later=rows % 4 == 2)
    more, tested = {
        "fraction": ({"test_fraction": 0.2}, None),
        "column": ({"test": "later"}, set(rows[rows % 4 == 2])),
        "clients": ({"test": {"clients": ["c1"]}}, set(rows[(rows >= 7) & (rows < 40) & (rows % 4 != 1)])),
        "file": ({"test": {"path": str(files / "others.npz")}}, set(range(1000, 1013))),
    }[test]
    _, held = problem(trial(files, task={"path": path, "validation": "fold", **more}))
    train, tests, chosen = map(set, sides(held))
    assert chosen == set(rows[rows % 4 == 1])
    assert tested is None or tests == tested
    assert not train & tests
    assert train | (tests & set(rows)) == set(rows) - chosen
    assert test != "fraction" or len(tests) == pytest.approx(0.2 * (len(rows) - len(chosen)), abs=1.5)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ({"test": "others"}, "task.validation must leave an example to train on, got all that do not test"),
        ({"test": {"clients": ["c0"]}}, "task.validation must leave an example to train on, got all that do not test"),
        ({"test": {"clients": ["c1"]}}, "task.validation must leave a test example, got all of the clients of test"),
    ],
)
def test_a_column_that_marks_all_others(files, test, message):
    rows = np.arange(sum(SIZES))
    path = marked(files, "most", fold=rows >= SIZES[0], others=rows < SIZES[0])
    assert str(wrong(trial(files, task={"path": path, "validation": "fold", **test}))).startswith(message)


def test_clients_who_neither_train_nor_test(files):
    more = {"validation": {"clients": ["c4", "c5"]}, "test": {"clients": ["c1"]}}
    spec, held = problem(trial(files, task=more))
    assert sides(held)[1:] == (list(range(7, 40)), list(range(53, 74)))
    assert spec.task.clients == 3
    shares = [
        problem(trial(files, task={**more, "validation": {"clients": 0.4}, "split_seed": seed}))[1] for seed in (0, 1)
    ]
    for one in shares:
        assert len(one.train.sizes) == 3
        assert not set(sides(one)[2]) & set(range(7, 40))


def test_reports_of_test_clients_and_adaptation_are_of_the_test_clients_alone(files):
    given = {"report": ["client_accuracy"], "adaptation": {"steps": [0, 1], "client_lr": 0.0}}
    line = Pack.from_spec(parse(trial(files, **given))).advance()[0]
    plain = Pack.from_spec(parse(trial(files, task={"validation": None}, **given))).advance()[0]
    assert {key: value for key, value in line.items() if key in plain and key != "wall_seconds"} == {
        key: value for key, value in plain.items() if key != "wall_seconds"
    } | {"train_loss": line["train_loss"]}


def measured(params, rows, files):
    """(losses, hits) of examples by their numbers, in float64."""
    sides = [np.load(files / f"{name}.npz") for name in ("mine", "others")]
    x, y = (np.concatenate([side[key] for side in sides]) for key in ("x", "y"))
    at = [int(np.flatnonzero(x[:, 0] == row)[0]) for row in rows]
    weight = np.array(params).reshape(CLASSES, INPUTS + 1)
    scores = x[at] @ weight[:, :-1].T + weight[:, -1]
    own = scores[np.arange(len(at)), y[at]]
    return np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1) - own, scores.argmax(1) == y[at]


BY_CLIENT = {
    "share": ({}, None),
    "column": ({"validation": "fold"}, {0: [2, 5], 1: [8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38], 3: [47, 50]}),
    "clients": ({"validation": {"clients": ["c0", "c4"]}}, {0: list(range(7)), 4: [53]}),
    "file": ({"validation": "others"}, {0: list(range(1000, 1009)), 1: list(range(1009, 1013))}),
}


@pytest.mark.parametrize("form", BY_CLIENT)
def test_metrics_by_client_are_those_of_a_direct_computation(files, form):
    """Rows of the file are in a random order, and a client without examples for validation is left out."""
    task, groups = BY_CLIENT[form]
    order = np.random.default_rng(2).permutation(sum(SIZES))
    with np.load(files / "mine.npz") as held:
        mixed = {key: held[key][order] for key in held.files}
    np.savez(files / f"{form}.npz", **mixed, fold=(order % 3 == 2) & (order < 53) & ~np.isin(order, range(40, 45)))
    path = {"path": str(files / f"{form}.npz"), "test": {"clients": ["c2", "c5"]}}
    own = {**task, "validation": {"path": str(files / "others.npz")}} if form == "file" else task
    spec, problem_ = problem(trial(files, task={**path, **own}, report=["params", "client_accuracy", "client_loss"]))
    line = Pack.from_spec(spec).advance()[-1]
    if groups is None:
        chosen = sides(problem_)[2]
        owners = np.searchsorted(np.cumsum(SIZES), chosen, side="right")
        groups = {owner: [row for row, of in zip(chosen, owners, strict=True) if of == owner] for owner in set(owners)}
        assert set(groups) == {0, 1, 3}
    by_client = [measured(line["params"], rows, files) for rows in groups.values()]
    assert len(groups) == len(problem_.test.sizes) - problem_.test.tests
    for measure, values in zip(("loss", "accuracy"), zip(*by_client, strict=True), strict=True):
        means = np.array([value.mean() for value in values])
        wanted = {"mean": means.mean(), "std": means.std(), "worst": means.max() if measure == "loss" else means.min()}
        wanted |= {f"p{percent}": np.percentile(means, percent) for percent in range(10, 100, 10)}
        found = {name: line[f"validation_client_{measure}_{name}"] for name in STATISTICS}
        assert found == pytest.approx(wanted, rel=1e-11, abs=1e-14)
        assert line[f"validation_{measure}"] == pytest.approx(np.concatenate(values).mean(), rel=1e-11)
        assert set(found.values()) != {line[f"client_{measure}_{name}"] for name in STATISTICS}


@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [5]}])
def test_trials_of_a_pack_have_the_metrics_by_client_that_they_have_alone(files, model):
    rates = [{"client_lr": rate} for rate in (0.001, 0.01)]
    document = trial(files, task={"model": model}, report=REPORTED)
    together = Pack.from_spec(parse({**document, "members": rates})).advance()
    for line, rate in zip(together[-2:], rates, strict=True):
        alone = Pack.from_spec(parse({**document, "method": {**document["method"], **rate}})).advance()[-1]
        same = [metric for metric in alone if metric.startswith(("validation_", "client_", "test_"))]
        for metric in same:
            assert line[metric] == pytest.approx(alone[metric], rel=1e-13), metric


def test_one_client_for_validation_gives_no_metrics_by_client(files):
    task = {"validation": {"clients": ["c1"]}, "test": {"clients": ["c0", "c5"]}}
    spec = parse(trial(files, task=task, report=REPORTED))
    line = Pack.from_spec(spec).advance()[-1]
    assert {metric for metric in line if metric.startswith("validation_")} == {
        "validation_loss",
        "validation_accuracy",
        "validation_macro_f1",
    }
    assert "client_accuracy_worst" in line
    assert set(spec.metrics) <= line.keys()


def test_text_and_digits_have_validation_too():
    for task, metric in (
        ({"name": "digits"}, "validation_accuracy"),
        ({"name": "digits", "central": {"classes": [3]}, "partition": "by_label"}, "test_loss_central"),
    ):
        spec = parse({"task": {**task, "validation": 0.2}, "method": {"name": "fedsgd", "server_lr": 0.1}, "rounds": 1})
        line = Pack.from_spec(spec).advance()[-1]
        assert set(spec.metrics) <= line.keys()
        assert metric in spec.metrics


WRONG = {
    "no column": ({"validation": "fold"}, {}, 'task.validation: no column "fold" in mine.npz'),
    "no clients": (
        {"validation": {"clients": ["c1"]}, "test": {"clients": ["c1"]}},
        {},
        "task.validation.clients: no c",
    ),
    "all clients": ({"validation": {"clients": [f"c{n}" for n in range(6)]}}, {}, "task.validation.clients must set a"),
    "no file": ({"validation": {"path": "none.npz"}}, {}, 'task.validation.path: no file "none.npz"'),
    "other keys": ({"validation": {"file": "x"}}, {}, 'unknown key "file" in task.validation'),
    "a list": ({"validation": ["fold"]}, {}, "task.validation must be in (0, 1), a column, "),
    "nothing": ({"validation": 0.001}, {}, "task.validation must set an example aside, got 0.001 of 59 examples"),
    "all": ({"validation": 1}, {}, "task.validation must be in (0, 1), a column, "),
    "no test": ({"test_fraction": 0}, {}, "task.validation must be left out without test examples"),
    "episodes": ({"episodes": {"ways": 2}}, {}, "task.validation must be left out beside episodes"),
    "shots": (
        {"test": {"clients": ["c0", "c2"]}, "validation": 0.5},
        {"adaptation": {"steps": [1], "client_lr": 0.1, "shots": 2}},
        "adaptation.shots must be at most 1 for this task",
    ),
    "sample": ({}, {"evaluation": {"clients": 2}}, "evaluation must be left out beside task.validation"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_in_a_line(files, name):
    task, more, message = WRONG[name]
    assert str(wrong(trial(files, task=task, **more))).startswith(message)


def test_a_study_chooses_by_validation():
    study = {
        "name": "chosen",
        "task": {"name": "digits", "validation": 0.2},
        "methods": [{"name": "fedavg"}],
        "budget": {"trials_per_method": 2, "rounds": 20},
    }
    read = Study.model_validate(study)
    assert read.objective.quality == "validation_accuracy"
    assert not [remark for remark in read.check() if "objective.quality" in remark]


@pytest.mark.parametrize(
    ("quality", "validation", "advice"),
    [
        ("validation_client_accuracy_worst", 0.25, None),
        ("client_accuracy_worst", 0.25, "validation_client_accuracy_worst would choose"),
        ("test_accuracy", 0.25, "validation_accuracy would choose"),
        ("client_accuracy_worst", {"clients": ["c1"]}, "examples for validation have no such metric"),
        ("adapted_loss_1", 0.25, "examples for validation have no such metric"),
        ("client_accuracy_worst", None, None),
    ],
)
def test_a_quality_of_test_clients_is_named_where_validation_would_choose(files, quality, validation, advice):
    study = {
        "name": "chosen",
        "task": {"name": "npz", "path": str(files / "mine.npz"), "validation": validation},
        "methods": [{"name": "fedavg"}],
        "budget": {"trials_per_method": 2, "rounds": 20},
        "report": ["client_accuracy", "macro_f1"],
        "adaptation": {"steps": [1], "client_lr": 0.1},
        "objective": {"quality": quality},
    }
    remarks = [remark for remark in Study.model_validate(study).check() if remark.startswith("objective.quality")]
    wanted = f"objective.quality: {quality} chooses by what is to report: {advice}"
    assert remarks == ([] if advice is None else [wanted])
