"""`driftline methods` and `driftline tasks`: short lists, one in full, JSON."""

import json
from typing import Any

import pytest
import yaml

from driftline.study.spec import Study
from search_spaces.presets import trainings
from tests.command_line import printed
from trainers.registry import methods, optimizers, schedules, tasks

ALL = {"methods": [*methods(), *optimizers(), *schedules(), *trainings()], "tasks": list(tasks())}


def read(*arguments: str) -> Any:
    return json.loads(printed(*arguments, "--json"))


def as_in_a_study(text: str, title: str) -> Any:
    """What stands below a title, read as YAML."""
    return yaml.safe_load(text.partition(f"{title}:\n")[2].partition("\n\n")[0])


@pytest.mark.parametrize("command", ALL)
def test_the_list_has_a_line_for_each(command: str) -> None:
    rows = [line.split(maxsplit=1) for line in printed(command).splitlines() if line.startswith("  ")]
    assert [name for name, _ in rows] == ALL[command]
    assert all(len(summary) > 10 and summary.endswith(".") for _, summary in rows)
    found = read(command)
    assert [(one["name"], f"{one['summary']}.") for one in found] == [tuple(row) for row in rows]
    kinds = {"method", "optimizer", "schedule", "preset"}
    assert {one["kind"] for one in found} == ({"task"} if command == "tasks" else kinds)


def test_a_preset_is_shown_with_its_entry_and_its_source() -> None:
    text, [found] = printed("methods", "diloco"), read("methods", "diloco")
    title = "Stands for the entry, of which a study may change each setting"
    assert as_in_a_study(text, title) == found["entry"] == trainings()["diloco"].entry
    assert f"Source: {found['source']}\n" in text
    both = read("methods", "lookahead")
    assert [one["kind"] for one in both] == ["method", "preset"]
    assert as_in_a_study(printed("methods", "lookahead"), title) == both[1]["entry"]


@pytest.mark.parametrize("name", ["fedprox", "plateau"])
def test_the_default_space_can_be_copied_into_a_study(name: str) -> None:
    text, [found] = printed("methods", name), read("methods", name)
    space = as_in_a_study(text, "Default search space")
    assert space == found["default_space"]
    entry = {"name": "fedprox"} if name == "fedprox" else {"name": "fedprox", "schedule": {"name": name}}
    document = {"name": "a", "task": "digits", "budget": {"trials_per_method": 8, "rounds": 5}}
    whole = Study.from_json({**document, "methods": [entry | {"schedule": {"name": "plateau", "space": "default"}}]})
    part = whole.methods[0] if name == "fedprox" else whole.methods[0].schedule
    assert {key: form.to_json() for key, form in part.space.items()} == space


def test_an_optimizer_has_a_space_in_each_role() -> None:
    text, [found] = printed("methods", "adam"), read("methods", "adam")
    assert "Serves as: client, server, central, merge.\n" in text
    assert list(found["default_space"]) == ["client", "server", "central", "merge"]
    assert as_in_a_study(text, "Default search space as client") == found["default_space"]["client"]
    assert as_in_a_study(text, "Default search space as server, central, merge") == found["default_space"]["merge"]


def test_a_method_in_full() -> None:
    [found] = read("methods", "fedprox")
    assert found["kind"] == "method"
    assert "client" in found["roles"]
    assert "Li et al. 2020" in found["source"]
    [prox] = [item for item in found["hyperparameters"] if item["name"] == "prox"]
    assert (prox["range"], prox["limit"]) == ("at least 0", "0 is FedAvg")
    assert "Roles: client, " in printed("methods", "fedprox")


def test_a_task_in_full() -> None:
    [found] = read("tasks", "digits")
    assert [item["name"] for item in found["settings"]][:2] == ["clients", "partition"]
    assert "size of the population" in printed("tasks", "digits")
