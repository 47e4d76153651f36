"""A study's file with many mistakes: all are named at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.study.all_errors import read_study, study_of

from .documents import changed

VALID: dict[str, Any] = {
    "name": "small",
    "task": {"name": "digits", "clients": 5},
    "methods": [{"name": "fedavg"}, {"name": "fedprox"}],
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


TOGETHER: dict[str, tuple[dict[str, Any], dict[str, list[str]]]] = {
    # what is written at which places of the valid study, and what is named for a place if that is not it alone
    "unknown key, metric": ({"budgt": 1, "objective.quality": "test_los"}, {}),
    "names of methods, optimizers and tasks": (
        {"methods[0]": "fedaveg", "task": "digitz", "methods[1].server": "adamm"},
        {"methods[0]": [".name"], "task": [".name"], "methods[1].server": [".name"]},
    ),
    "budget and labels": (
        {
            "budget": {"trials_per_method": "many"},
            "sampler": "grid",
            "methods[1]": {"name": "fedavg", "space": {"prox": 1}},
        },
        {
            "budget": [".trials_per_method", ".rounds"],
            "sampler": [],
            "methods[1]": [".label", *(f".space.{name}" for name in ("client_lr", "server_lr", "local_steps", "prox"))],
        },
    ),
    "no entries": ({"methods": "fedavg", "task": "digitz"}, {"task": [".name"]}),
    "cohorts of an unknown population": (
        {"task.clients": "x", "methods": [OWN, SIZED], "clients_per_round": 300},
        {"methods": [], "clients_per_round": []},
    ),
    "of another task": (
        {"task": {"name": "digitz", "clients": 500}, "methods": [OWN]},
        {"task": [".name"], "methods": []},
    ),
    "settings of an entry's own": (
        {"methods[1]": OWN | {"batch_size": 0}},
        {"methods[1]": [".batch_size", ".clients_per_round"]},
    ),
    "sizes": ({"clients_per_round": 0, "batch_size": -5, "task.clients": 0, "task.partition.dirichlet": -1}, {}),
    "a space": (
        {
            "methods[1].space": {"prox": {"choices": [1]}, "momentum": 0.9},
            "methods[1].space.client_lr": {"float": [2, 1]},
            "methods[1].space.server_lr": -1,
            "methods[1].space.local_steps": {"int": [0, 3]},
            "methods[1].server": "adamm",
        },
        {"methods[1].space": [".prox.choices", ".momentum"], "methods[1].server": [".name"]},
    ),
    "constraints": (
        {
            "methods[0].space": "default",
            "methods[0].constraints": ["client_lr <", "client_lr <= server_lr", "prox <= 1", "client_lr <= -1"],
        },
        {"methods[0].space": [], "methods[0].constraints": ["[0]", "[2]", ""]},
    ),
    "settings": ({"task.clients": -1, "seed": -1}, {}),
    "beside a misspelt key": (
        {"budget": {"trials": 4, "rounds": 0, "seeds": -1}},
        {"budget": [".trials", ".rounds", ".seeds"]},
    ),
    "the value of a misspelt key": (
        {"budget": {"trails_per_method": -1, "round": 3}},
        {"budget": [".trails_per_method", ".round", ".trials_per_method"]},
    ),
    "missing": ({"budget": {"n": 4}}, {"budget": [".n", ".trials_per_method", ".rounds"]}),
    "methods misspelt": ({"methods": ..., "method": ["fedavg"], "task.model": "mpl"}, {"methods": []}),
    "a task, its partition and its model": (
        {"task.clients": 0, "task.partition": {"dirichlt": -1}, "task.model": {"name": "mlp", "x": 3}},
        {"task.partition": [".dirichlt", ".dirichlet"], "task.model": [".x"]},
    ),
    "cohorts of a known population": ({"clients_per_round": 900, "task.partition.dirichlet": -1}, {}),
    "an unknown method, and what does not depend on it": (
        {
            "methods[0]": {"name": "fedavgg", "label": "?", "sever": "adamm", "batch_size": 0},
            "methods[0].space": {"prox": 1, "client_lr": {"float": [2, 1]}},
            "methods[0].constraints": ["client_lr <"],
            "methods[0].schedule.name": "plato",
            "methods[1].client": {"name": "adam", "spac": {"beta1": 9, "beta3": 1}},
        },
        {
            "methods[0]": [".name", ".label", ".sever", ".server.name", ".batch_size"],
            "methods[0].space": [".client_lr"],
            "methods[0].constraints": ["[0]"],
            "methods[1].client": [".spac", ".space.beta1", ".space.beta3"],
        },
    ),
    "mappings and lists of settings": (
        {
            "adaptation": {"steps": [-1], "shots": 0, "x": 2},
            "evaluation": {"clients": 0, "y": 1},
            "report": ["foo", "params", "bar"],
            "init": [1, None],
            "dtype": "float61",
        },
        {"adaptation": [".x", ".steps.0", ".shots"], "evaluation": [".clients", ".y"], "report": [".0", ".2"]},
    ),
    "no mappings": (
        {"budget": 7, "resources": 3, "objective": 5, "task": 3, "sampler": 2, "methods[0]": 3, "methods[1].x": 1},
        {},
    ),
    "misspelt keys with wrong values": (
        {
            "sampler": {"name": "tpe", "startp": -1},
            "resources": {"gpus": -1, "cpus": -1},
            "objective": {"qualty": "test_los", "cost": "euros"},
        },
        {
            "sampler": [".startp", ".startup"],
            "resources": [".gpus", ".gpu", ".cpus"],
            "objective": [".qualty", ".quality", ".cost"],
        },
    ),
}


@pytest.mark.parametrize("kind", TOGETHER)
def test_errors_of_every_kind_are_named_together(kind: str, tmp_path: Path) -> None:
    changes, named = TOGETHER[kind]
    document = VALID
    for place, value in changes.items():
        document = changed(document, place, value)
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(InvalidSpec) as found:
        read_study(file).check()
    wanted = [f"{place}{end}" for place in changes for end in named.get(place, [""])]
    assert sorted(path for path, _ in found.value.errors) == sorted(wanted)


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
    document = RICH
    for place, value, _ in chosen:
        document = changed(document, place, value)
    with pytest.raises(InvalidSpec) as found:
        study_of(document).check()
    named = [path.replace("[", ".").replace("]", "") for path, _ in found.value.errors]
    assert sorted(named) == sorted(other or place for place, _, other in chosen), str(found.value)
