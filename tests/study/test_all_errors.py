"""A study's file with many mistakes: all are named at once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.study.all_errors import read_study, study_of

VALID: dict[str, Any] = {
    "name": "small",
    "task": {"name": "digits", "clients": 5},
    "methods": ["fedavg", "fedprox"],
    "objective": {"quality": "test_loss"},
    "budget": {"trials_per_method": 4, "rounds": 3},
}
RICH: dict[str, Any] = {
    "name": "rich",
    "task": {"name": "digits", "clients": 20, "partition": {"dirichlet": 0.5}, "model": {"name": "mlp", "hidden": [8]}},
    "methods": [
        {
            "name": "fedavg",
            "space": {"client_lr": 0.1, "server_lr": 1, "local_steps": {"int": [1, 5]}},
            "batch_size": 4,
        },
        {"name": "fedprox", "server": {"name": "adam", "space": {"beta1": 0.8}}, "constraints": ["client_lr <= 0.5"]},
        {"name": "scaffold", "schedule": {"name": "plateau", "space": {"window": 5}}, "start": [{"client_lr": 0.1}]},
    ],
    "objective": {"quality": "test_loss", "cost": "bytes"},
    "budget": {"trials_per_method": 4, "rounds": 30, "rungs": [10], "seeds": 2},
    "resources": {"cpus": 1},
    "sampler": {"name": "tpe", "startup": 3},
    "adaptation": {"steps": [1], "client_lr": 0.1},
    "report": ["params"],
    "clients_per_round": 5,
    "seed": 1,
}
MISTAKES: list[tuple[str, Any, str]] = [  # where, what is written there, and the place that the error names if another
    ("name", "a b", ""),
    ("seed", -1, ""),
    ("batching", "shufled", ""),
    ("clients_per_round", 0, ""),
    ("clients_per_round", 400, ""),
    ("task.clients", 0, ""),
    ("task.split_sed", 3, ""),
    ("task.partition", {"dirichlet": -1}, "task.partition.dirichlet"),
    ("task.partition", "by_lable", ""),
    ("task.model.hidden", "x", ""),
    ("task.model.widht", 3, ""),
    ("task.model", {"name": "mpl"}, ""),
    ("methods.0.space.client_lr", -1, ""),
    ("methods.0.space.local_steps", {"int": [5, 1]}, ""),
    ("methods.0.space.prox", 1, ""),
    ("methods.0.batch_size", 0, ""),
    ("methods.0.sever", "sgd", ""),
    ("methods.1.name", "fedpox", ""),
    ("methods.1.server.name", "adamm", ""),
    ("methods.1.server.space.beta1", 2, ""),
    ("methods.1.server.spac", {}, ""),
    ("methods.1.constraints", ["client_lr <"], "methods.1.constraints.0"),
    ("methods.1.label", "?", ""),
    ("methods.2.schedule.name", "plateu", ""),
    ("methods.2.schedule.space.window", 0, ""),
    ("methods.2.start", [{"client_lr": "x"}], "methods.2.start.0.client_lr"),
    ("methods.2.client", 3, ""),
    ("objective.quality", "test_los", ""),
    ("objective.cost", "euros", ""),
    ("objective.optimise", "both", ""),
    ("budget.rounds", 0, ""),
    ("budget.rungs", [40], ""),
    ("budget.trials", 4, ""),
    ("budget.seeds", 1.5, ""),
    ("resources.cpus", -1, ""),
    ("resources.gpus", 1, ""),
    ("sampler.startup", 0, ""),
    ("sampler", "tpee", ""),
    ("adaptation.steps", [-1], "adaptation.steps.0"),
    ("adaptation.client_lr", -1, ""),
    ("report", ["parms"], "report.0"),
    ("evaluation", {"clients": 0}, "evaluation.clients"),
    ("methd", 3, ""),
]
RELATED = [  # of these, one is only known if the other is right
    {"task.clients", "clients_per_round"},
    {"task.model", "task.partition"},
    {"budget.rounds", "budget.rungs"},
    {"methods.1.name", "methods.1.constraints"},
    {"methods.1.server.name", "methods.1.server.space.beta1"},
    {"methods.2.schedule.name", "methods.2.schedule.space.window"},
]
OWN = {"name": "fedavg", "label": "own", "clients_per_round": 400}
SIZED = {"name": "fedavg", "label": "sized", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}}
SIZED["space"] |= {"clients_per_round": 400}


def errors(tmp_path: Path, **changes: Any) -> list[str]:
    """The places of the errors of the valid study with some keys replaced."""
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in (VALID | changes).items() if value is not None}))
    with pytest.raises(InvalidSpec) as found:
        read_study(file).check()
    return [path for path, _ in found.value.errors]


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        pytest.param(
            {"budgt": 1, "objective": {"quality": "test_los"}}, ["budgt", "objective.quality"], id="unknown key, metric"
        ),
        pytest.param(
            {"methods": ["fedaveg", {"name": "fedprox", "server": "adamm"}], "task": "digitz"},
            ["methods[0].name", "task.name", "methods[1].server.name"],
            id="names of methods, optimizers and tasks",
        ),
        pytest.param(
            {
                "budget": {"trials_per_method": "many"},
                "sampler": "grid",
                "methods": ["fedavg", {"name": "fedavg", "space": {"prox": 1}}],
            },
            [
                *("budget.trials_per_method", "budget.rounds", "methods[1].label"),
                *(f"methods[1].space.{name}" for name in ("client_lr", "server_lr", "local_steps", "prox")),
            ],
            id="budget and labels",
        ),
        pytest.param({"methods": "fedavg", "task": "digitz"}, ["methods", "task.name"], id="no entries"),
        pytest.param(
            {"task": {"name": "digits", "clients": "x"}, "methods": [OWN, SIZED], "clients_per_round": 300},
            ["task.clients"],
            id="cohorts of an unknown population",
        ),
        pytest.param(
            {"task": {"name": "digitz", "clients": 500}, "methods": [OWN]}, ["task.name"], id="of another task"
        ),
        pytest.param(
            {"methods": ["fedavg", OWN | {"batch_size": 0}], "task": {"name": "digits", "clients": 5}},
            ["methods[1].batch_size", "methods[1].clients_per_round"],
            id="settings of an entry's own",
        ),
        pytest.param(
            {
                "clients_per_round": 0,
                "batch_size": -5,
                "task": {"name": "digits", "clients": 0, "partition": {"dirichlet": -1}},
            },
            ["clients_per_round", "batch_size", "task.clients", "task.partition.dirichlet"],
            id="sizes",
        ),
        pytest.param(
            {
                "methods": [
                    {
                        "name": "fedprox",
                        "space": {
                            "client_lr": {"float": [2, 1]},
                            "server_lr": -1,
                            "local_steps": {"int": [0, 3]},
                            "prox": {"choices": [1]},
                            "momentum": 0.9,
                        },
                        "server": "adamm",
                    }
                ]
            },
            [
                "methods[0].space.client_lr",
                "methods[0].space.server_lr",
                "methods[0].space.local_steps",
                "methods[0].space.prox.choices",
                "methods[0].space.momentum",
                "methods[0].server.name",
            ],
            id="a space",
        ),
        pytest.param(
            {
                "methods": [
                    {
                        "name": "fedavg",
                        "space": "default",
                        "constraints": ["client_lr <", "client_lr <= server_lr", "prox <= 1", "client_lr <= -1"],
                    },
                    "fedprox",
                ]
            },
            ["methods[0].constraints[0]", "methods[0].constraints[2]", "methods[0].constraints"],
            id="constraints",
        ),
        pytest.param({"task": {"name": "digits", "clients": -1}, "seed": -1}, ["seed", "task.clients"], id="settings"),
        pytest.param(
            {"budget": {"trials": 4, "rounds": 0, "seeds": -1}},
            ["budget.trials", "budget.rounds", "budget.seeds"],
            id="beside a misspelt key",
        ),
        pytest.param(
            {"budget": {"trails_per_method": -1, "round": 3}},
            ["budget.trails_per_method", "budget.round", "budget.trials_per_method"],
            id="the value of a misspelt key",
        ),
        pytest.param({"budget": {"n": 4}}, ["budget.n", "budget.trials_per_method", "budget.rounds"], id="missing"),
        pytest.param(
            {"methods": None, "method": ["fedavg"], "task": {"name": "digits", "model": "mpl"}},
            ["method", "task.model"],
            id="methods misspelt",
        ),
        pytest.param(
            {"task": {"name": "digits", "clients": 0, "partition": {"dirichlt": -1}, "model": {"name": "mlp", "x": 3}}},
            ["task.clients", "task.partition.dirichlt", "task.partition.dirichlet", "task.model.x"],
            id="a task, its partition and its model",
        ),
        pytest.param(
            {"clients_per_round": 900, "task": {"name": "digits", "clients": 5, "partition": {"dirichlet": -1}}},
            ["clients_per_round", "task.partition.dirichlet"],
            id="cohorts of a known population",
        ),
        pytest.param(
            {
                "methods": [
                    {
                        "name": "fedavgg",
                        "label": "?",
                        "sever": "adamm",
                        "batch_size": 0,
                        "space": {"prox": 1, "client_lr": {"float": [2, 1]}},
                        "constraints": ["client_lr <"],
                        "schedule": {"name": "plato"},
                    },
                    {"name": "fedprox", "client": {"name": "adam", "spac": {"beta1": 9, "beta3": 1}}},
                ]
            },
            [
                *("methods[0].sever", "methods[0].label", "methods[0].space.client_lr", "methods[0].constraints[0]"),
                *("methods[0].name", "methods[0].server.name", "methods[0].batch_size", "methods[0].schedule.name"),
                *("methods[1].client.spac", "methods[1].client.space.beta1", "methods[1].client.space.beta3"),
            ],
            id="an unknown method, and what does not depend on it",
        ),
        pytest.param(
            {
                "adaptation": {"steps": [-1], "shots": 0, "x": 2},
                "evaluation": {"clients": 0, "y": 1},
                "report": ["foo", "params", "bar"],
                "init": [1, None],
                "dtype": "float61",
            },
            [
                *("adaptation.x", "adaptation.steps.0", "adaptation.shots", "evaluation.clients", "evaluation.y"),
                *("report.0", "report.2", "init", "dtype"),
            ],
            id="mappings and lists of settings",
        ),
        pytest.param(
            {
                "budget": 7,
                "resources": 3,
                "objective": 5,
                "task": 3,
                "sampler": 2,
                "methods": [3, {"name": "fedavg", "x": 1}],
            },
            ["budget", "resources", "objective", "task", "sampler", "methods[0]", "methods[1].x"],
            id="no mappings",
        ),
        pytest.param(
            {
                "sampler": {"name": "tpe", "startp": -1},
                "resources": {"gpus": -1, "cpus": -1},
                "objective": {"qualty": "test_los", "cost": "euros"},
            },
            [
                *("sampler.startp", "sampler.startup", "resources.gpus", "resources.gpu", "resources.cpus"),
                *("objective.qualty", "objective.quality", "objective.cost"),
            ],
            id="misspelt keys with wrong values",
        ),
    ],
)
def test_errors_of_every_kind_are_named_together(changes: dict[str, Any], places: list[str], tmp_path: Path) -> None:
    assert sorted(errors(tmp_path, **changes)) == sorted(places)


def test_if_no_entry_can_be_read_the_task_is_checked_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    broken = {"methods": [{"name": "fedavg", "space": {"client_lr": -1}}], "objective": {"quality": "test_los"}}
    file.write_text(yaml.safe_dump(VALID | broken))
    with pytest.raises(InvalidSpec) as found:
        read_study(file).check()
    first, *others = (path for path, _ in found.value.errors)
    missing = {"methods[0].space.local_steps", "methods[0].space.server_lr"}
    assert (first, set(others)) == ("methods[0].space.client_lr", {"objective.quality", *missing})


def apart(chosen: list[tuple[str, Any, str]]) -> bool:
    """Whether no mistake is at the place of another one, and none hides whether another one is right."""
    places = [place for place, _, _ in chosen]
    pairs = [(one, other) for one in places for other in places if one is not other]
    return not any(f"{other}.".startswith(f"{one}.") or {one, other} in RELATED for one, other in pairs)


@settings(max_examples=20, derandomize=True, deadline=None, database=None)
@given(st.lists(st.sampled_from(MISTAKES), min_size=2, max_size=5, unique_by=lambda mistake: mistake[0]).filter(apart))
def test_every_mistake_is_named_once(chosen: list[tuple[str, Any, str]]) -> None:
    document = copy.deepcopy(RICH)
    for place, value, _ in chosen:
        holder: Any = document
        *steps, key = place.split(".")
        for step in steps:
            holder = holder[int(step) if step.isdigit() else step]
        holder[key] = value
    with pytest.raises(InvalidSpec) as found:
        study_of(document).check()
    named = [path.replace("[", ".").replace("]", "") for path, _ in found.value.errors]
    assert sorted(named) == sorted(other or place for place, _, other in chosen), str(found.value)
