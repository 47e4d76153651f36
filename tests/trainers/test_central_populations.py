"""The server's own clients and the server's own file: who trains on what, and evaluation of each population apart."""

import json

import numpy as np
import pytest
import torch

from trainers.data.table import Table, TablePart
from trainers.data.table_split import server_population
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.registry import tasks
from trainers.trial.document import parse

SIZES = {"ann": 10, "bob": 6, "cy": 20, "dee": 14}
APART = [f"test_{name}_{whose}" for name in ("loss", "accuracy") for whose in ("federated", "central")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Examples that their first number tells apart: below 1000 the clients', from 1000 the server's, then others'."""
    place, generator = tmp_path_factory.mktemp("populations"), np.random.default_rng(0)
    for name, sizes, first in (("mine", SIZES, 0), ("own", {"x": 30}, 1000), ("later", {"cy": 5, "new": 7}, 2000)):
        count = sum(sizes.values())
        x = generator.normal(size=(count, 3))
        x[:, 0] = first + np.arange(count)
        labels = np.array(["no", "yes"])[np.arange(count) % 2]
        np.savez(place / f"{name}.npz", x=x, y=labels, client=np.repeat(list(sizes), list(sizes.values())))
    np.savez(place / "strange.npz", x=np.ones((4, 3)), y=np.array(["no", "yes", "no", "perhaps"]))
    np.savez(place / "wide.npz", x=np.ones((4, 4)), y=np.array(["no", "yes", "no", "yes"]))
    return place


def trial(folder, central, **task):
    method = {"name": "parallel_training", "client_lr": 1e-4, "server_lr": 1e-4, "local_steps": 2}
    method |= {"federated_weight": 1.0, "central_lr": 1e-4, "central_steps": 2}
    if central is None:
        method = {"name": "fedsgd", "server_lr": 1e-4}
    given = {"name": "npz", "path": str(folder / "mine.npz"), "central": central, **task}
    return {"task": given, "method": method, "rounds": 2, "dtype": "float64"}


def built(document):
    task = document["task"]
    settings = tasks()[task["name"]].parse(task, "task")
    return settings, tasks()[task["name"]].build(settings, "float64")


def numbers(inputs):
    return sorted(inputs[:, 0].astype(int).tolist())


OWN = {"ann": range(10), "bob": range(10, 16), "cy": range(16, 36), "dee": range(36, 50)}


def test_clients_of_the_server_do_not_train_and_are_tested_apart(folder):
    settings, problem = built(trial(folder, {"clients": ["bob", "cy"]}))
    servers = {*OWN["bob"], *OWN["cy"]}
    assert set(numbers(problem.central.inputs)) <= servers
    assert not servers & set(numbers(problem.train.inputs))
    assert settings.clients == 2
    test = problem.test
    assert {int(number) for number in test.inputs[test.central, 0]} <= servers
    assert not servers & {int(number) for number in test.inputs[~test.central, 0]}
    together = numbers(np.concatenate([problem.train.inputs, problem.central.inputs, test.inputs]))
    assert together == list(range(50))
    assert list(settings.metrics[2:]) == APART
    again = tasks()["npz"].parse(json.loads(json.dumps(settings.document)), "task")
    assert (again.document, again.apart) == (settings.document, settings.apart)


def test_a_share_of_the_clients_is_drawn(folder):
    settings, problem = built(trial(folder, {"clients": 0.5}))
    assert settings.clients == 2
    assert settings.document["central"] == {"clients": 0.5}
    drawn = [name for name, own in OWN.items() if set(own) & set(numbers(problem.central.inputs))]
    assert len(drawn) == 2
    assert list(settings.metrics[2:]) == APART


def test_a_file_for_testing_tells_the_populations_apart_by_names(folder):
    settings, problem = built(trial(folder, {"clients": ["cy"]}, test={"path": str(folder / "later.npz")}))
    assert numbers(problem.test.inputs[problem.test.central]) == list(range(2000, 2005))
    settings, problem = built(trial(folder, {"clients": ["ann"]}, test={"path": str(folder / "later.npz")}))
    assert settings.metrics == ("test_loss", "test_accuracy")
    assert problem.test.central is None


@pytest.mark.parametrize(
    "more", [{}, {"scale": "standardise"}, {"partition": "iid", "clients": 5}, {"validation": 0.2}]
)
def test_a_file_of_the_server_trains_and_tests_apart(folder, more):
    own = {"path": str(folder / "own.npz")}
    settings, problem = built(trial(folder, own, **more))
    plain_settings, plain = built(trial(folder, None, **more))
    np.testing.assert_array_equal(problem.train.inputs, plain.train.inputs)
    count = len(plain.test.targets) if plain.test.tests is None else plain.test.offsets[plain.test.tests]
    np.testing.assert_array_equal(problem.test.inputs[:count], plain.test.inputs[:count])
    held = problem.test.central
    assert held.sum() == 6
    assert not held[:count].any()
    assert [name for name in settings.metrics if name.endswith(("federated", "central"))] == APART
    if "scale" not in more:
        servers = numbers(np.concatenate([problem.central.inputs, problem.test.inputs[held]]))
        assert servers == list(range(1000, 1030))
    assert settings.sha256 != plain_settings.sha256
    again = tasks()["npz"].parse(json.loads(json.dumps(settings.document)), "task")
    assert again.document == settings.document


@pytest.mark.parametrize("central", [{"clients": ["cy"]}, "file"])
def test_measures_of_each_population_are_those_of_its_examples(folder, central):
    central = {"path": str(folder / "own.npz")} if central == "file" else central
    document = trial(folder, central, model="softmax")
    pack = Pack.from_spec(parse({**document, "report": ["params"]}))
    line = pack.advance()[-1]
    _, problem = built(document)
    weight = torch.tensor(line["params"], dtype=torch.float64).view(2, -1)
    x = torch.as_tensor(problem.test.inputs)
    scores = x @ weight[:, :-1].T + weight[:, -1]
    losses = torch.nn.functional.cross_entropy(scores, torch.as_tensor(problem.test.targets), reduction="none").numpy()
    mask = problem.test.central
    assert line["test_loss"] == pytest.approx(losses.mean(), rel=1e-10)
    assert line["test_loss_central"] == pytest.approx(losses[mask].mean(), rel=1e-10)
    assert line["test_loss_federated"] == pytest.approx(losses[~mask].mean(), rel=1e-10)


def test_a_label_of_the_servers_file_alone_is_a_class(folder):
    for name, others in (("mine", 2), ("own", 3)):  # the clients have classes 0 and 1
        with np.load(folder / f"{name}.npz") as held:
            np.savez(folder / f"{name}_whole.npz", **{**held, "y": np.arange(len(held["y"])) % others})
    own = {"path": str(folder / "own_whole.npz")}
    document = trial(folder, own, path=str(folder / "mine_whole.npz"), model="softmax")
    settings, problem = built(document)
    assert settings.classes == 3
    assert not settings.notes
    assert set(problem.central.targets.tolist()) == {0, 1, 2}
    assert np.isfinite(Pack.from_spec(parse(document)).advance()[-1]["test_loss_central"])


def test_the_server_is_no_held_out_client(folder):
    task, own = {"test": {"clients": ["cy", "dee"]}}, {"path": str(folder / "own.npz")}
    asked = {"report": ["client_accuracy"], "adaptation": {"steps": [1], "client_lr": 0.1, "shots": 7}}
    specs = [parse({**trial(folder, central, **task), **asked}) for central in (None, own)]
    assert {line for spec in specs for line in spec.warnings if "shots" in line} == {
        "adaptation.shots leaves out 1 of 2 held-out clients, which have at most 7 examples of a class"
    }
    plain, found = (Pack.from_spec(spec).advance()[0] for spec in specs)
    measured = [name for name in plain if name.startswith(("client_accuracy", "adapted"))]
    assert len(measured) > 10
    assert {name: found[name] for name in measured} == {name: plain[name] for name in measured}
    for central in (own, {"clients": ["ann"]}):
        split = {} if central is own else {"test_fraction": 0.2}
        with pytest.raises(SpecError, match=r"evaluation must be left out beside task\.central, whose own test"):
            parse({**trial(folder, central, **(split or task)), "evaluation": {"clients": 1}})


WRONG = {
    "name": ({"clients": ["anne"]}, 'task.central.clients: no client "anne" for training: did you mean ann?'),
    "all": ({"clients": list(SIZES)}, "task.central.clients must leave an example to the clients"),
    "twice": ({"clients": ["ann", "ann"]}, "task.central.clients must be a list of different clients, or a share"),
    "share": ({"clients": 2}, "task.central.clients must be in (0, 1), got clients=2"),
    "shape": (
        {"path": "wide.npz"},
        "task.central.inputs must have examples of shape (3,) as task.inputs has, got (4,)",
    ),
    "number": ({"path": 3}, "task.central.path must be a string"),
    "more": ({"path": "own.npz", "share": 1}, 'unknown key "share" in task.central'),
    "gone": ({"path": "none.npz"}, "task.central.path"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_in_a_line(folder, name):
    central, message = WRONG[name]
    if isinstance(central.get("path"), str):
        central = {**central, "path": str(folder / central["path"])}
    with pytest.raises(SpecError) as error:
        built(trial(folder, central))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_label_of_the_server_alone_is_a_class_of_the_model(folder):
    settings, _ = built(trial(folder, {"path": str(folder / "strange.npz")}))
    assert (settings.outputs, settings.document["labels"]) == (3, ["no", "perhaps", "yes"])


def test_data_without_people_have_none_for_the_server():
    with pytest.raises(SpecError, match=r"task\.central\.clients must be left out of data without natural clients"):
        built({"task": {"name": "digits", "central": {"clients": 0.5}}})


def test_clients_of_two_files_are_the_same_by_their_written_names() -> None:
    zeros, two = np.zeros((2, 1)), np.arange(2)
    main = TablePart(zeros, two, two, np.array([7, 8]))
    table = Table(main, TablePart(zeros, two, two, np.array(["7", "new"])), None, "")
    assert server_population({"clients": ["7"]}, table, two[:1], [two[:1], two[1:]]) == (True, False)
