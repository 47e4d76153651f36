"""A study's file with many mistakes: all are named at once. Files with one are in the tests of what may be wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from driftline.errors import InvalidSpec
from driftline.study.all_errors import read_study

from .documents import changed

VALID: dict[str, Any] = {
    "name": "small",
    "task": {"name": "digits", "clients": 5},
    "methods": [{"name": "fedavg"}, {"name": "fedprox"}],
    "objective": {"quality": "test_loss"},
    "budget": {"trials_per_method": 4, "rounds": 3},
}
OWN = {"name": "fedavg", "label": "own", "clients_per_round": 400}
SIZED = {"name": "fedavg", "label": "sized", "space": {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}}
SIZED["space"] |= {"clients_per_round": 400}


TOGETHER: dict[str, tuple[dict[str, Any], dict[str, list[str]]]] = {
    # what is written at which places of the valid study, and what is named for a place if that is not it alone
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
    "constraints": (
        {
            "methods[0].space": "default",
            "methods[0].constraints": ["client_lr <", "client_lr <= server_lr", "prox <= 1", "client_lr <= -1"],
        },
        {"methods[0].space": [], "methods[0].constraints": ["[0]", "[2]", ""]},
    ),
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
