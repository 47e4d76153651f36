"""Declaring, describing and checking hyperparameters; names with a nearest neighbour; the registry of modules."""

import math
import pickle
import sys
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainers.errors import MissingDataError, SpecError, TrainerError
from trainers.hyperparameters import check, describe, tunable
from trainers.registry import Registry, schedules, tasks
from trainers.schedules import constant
from trainers.spelling import hint, nearest
from trainers.values import LARGEST, integer, number, shown


@dataclass(frozen=True)
class Hyper:
    client_lr: Tensor = tunable(low=0, unit="step", limit="0 is large-batch SGD", doc="step of a client")
    local_steps: Tensor = tunable(5, kind="int", low=1)
    momentum: float = tunable(0.0, low=0, high=1, high_open=True)
    server_lr: float = tunable(1.0, low=0, low_open=True)
    clip_norm: float | None = tunable(None, low=0, low_open=True, traced=False)
    nesterov: bool = tunable(False, traced=False)
    gradient_weights: tuple[float, ...] | None = tunable(None, low=0)
    sync: str = tunable("reset", choices=("reset", "average"), traced=False)
    other: int = 3


def test_describe_says_all_that_was_declared() -> None:
    found = {item.name: item for item in describe(Hyper)}
    assert list(found) == [field.name for field in fields(Hyper)][:-1]
    kinds = ["float", "int", "float", "float", "float", "bool", "floats", "str"]
    assert [item.kind for item in found.values()] == kinds
    assert (found["client_lr"].default, found["client_lr"].required) == (MISSING, True)
    assert (found["local_steps"].default, found["local_steps"].required) == (5, False)
    assert found["client_lr"].limit == "0 is large-batch SGD"
    assert [name for name, item in found.items() if not item.traced] == ["clip_norm", "nesterov", "sync"]
    assert [name for name, item in found.items() if item.optional] == ["clip_norm", "gradient_weights"]


def test_check_fills_in_defaults_and_turns_values_into_their_types() -> None:
    values = check(Hyper, {"client_lr": "1e-3", "local_steps": 10.0, "gradient_weights": [0, "1"]}, "method")
    assert values == {
        "client_lr": 0.001,
        "local_steps": 10,
        "momentum": 0.0,
        "server_lr": 1.0,
        "clip_norm": None,
        "nesterov": False,
        "gradient_weights": (0.0, 1.0),
        "sync": "reset",
    }
    assert type(values["local_steps"]) is int


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "client_lr must be given (at least 0)"),
    ({"client_lr": -0.1}, "client_lr must be at least 0, got client_lr=-0.1"),
    ({"client_lr": None}, "client_lr must be a number, got client_lr=null"),
    ({"client_lr": True}, "client_lr must be a number, got client_lr=true"),
    ({"client_lr": "fast"}, 'client_lr must be a number, got client_lr="fast"'),
    ({"client_lr": "nan"}, 'client_lr must be a number, got client_lr="nan"'),
    ({"client_lr": "1_0"}, 'client_lr must be a number, got client_lr="1_0"'),
    ({"client_lr": [1]}, "client_lr must be a number, got client_lr=[1]"),
    ({"client_lr": math.inf}, "client_lr must be finite, got client_lr=Infinity"),
    ({"client_lr": 10**400}, "client_lr must be "),
    ({"local_steps": 0}, "local_steps must be at least 1, got local_steps=0"),
    ({"local_steps": 1.5}, "local_steps must be a whole number, got local_steps=1.5"),
    ({"local_steps": False}, "local_steps must be a whole number, got local_steps=false"),
    ({"momentum": 1}, "momentum must be in [0, 1), got momentum=1"),
    ({"server_lr": 0}, "server_lr must be above 0, got server_lr=0"),
    ({"nesterov": 1}, "nesterov must be true or false, got nesterov=1"),
    ({"sync": "resets"}, 'sync must be one of reset, average, got sync="resets"'),
    ({"sync": 3}, "sync must be a string, got sync=3"),
    ({"gradient_weights": []}, "gradient_weights must be a list of at least one number, got gradient_weights=[]"),
    ({"gradient_weights": "12"}, 'gradient_weights must be a list of at least one number, got gradient_weights="12"'),
    ({"gradient_weights": [1, -1]}, "gradient_weights.1 must be "),
]


@pytest.mark.parametrize(("document", "message"), WRONG)
def test_check_refuses(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        check(Hyper, {"client_lr": 1, **document} if document else {}, "method")
    assert caught.value.path == f"method.{message.split()[0]}"
    assert str(caught.value).startswith(f"method.{message}")
    assert message.endswith("must be ") or str(caught.value) == f"method.{message}"
    assert "\n" not in str(caught.value)


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SpecError, match=r'^unknown key "client_rl" in method: did you mean client_lr\?$') as caught:
        check(Hyper, {"client_rl": 1}, "method")
    assert caught.value.path == "method.client_rl"


def test_a_kind_must_follow_from_the_annotation() -> None:
    @dataclass(frozen=True)
    class Vague:
        thing: Any = tunable(1)

    with pytest.raises(TypeError, match="no kind follows"):
        describe(Vague)
    with pytest.raises(ValueError, match="kind must be one of"):
        tunable(kind="number")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_being_written_as_text(value: float) -> None:
    assert number(repr(value), "x") == value
    assert number(value, "x") == value


@given(st.integers(-LARGEST, LARGEST))
def test_whole_numbers_stay_exact(value: int) -> None:
    assert integer(value, "x") == value


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_whatever_comes_is_shown_on_one_short_line(value: Any) -> None:
    assert len(shown(value)) <= 60
    assert "\n" not in shown(value)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingDataError("task: no\n data", "task")))
    assert (type(error), str(error), error.path) == (MissingDataError, "task: no data", "task")
    assert isinstance(error, TrainerError)
    assert isinstance(error, ValueError)


def test_nearest() -> None:
    known = ["client_lr", "server_lr", "local_steps"]
    assert nearest("clientlr", known) == "client_lr"
    assert nearest("Server-LR", known) == "server_lr"
    assert nearest("local_step", known) == "local_steps"
    assert nearest("xyz", known) is None
    assert hint("xyz", known) == "known are client_lr, local_steps, server_lr"


def test_the_registry_lists_modules_and_names_the_nearest() -> None:
    assert {"constant", "plateau"} <= set(schedules())
    assert schedules()["plateau"].__module__ == "trainers.schedules.plateau"
    with pytest.raises(SpecError) as caught:
        schedules().find("platau", "schedule.name")
    assert str(caught.value) == 'schedule.name: no schedule "platau": did you mean plateau?'
    with pytest.raises(SpecError, match=r"task\.name must be the name of a task, got name=3"):
        tasks().find(3, "task.name")
    with pytest.raises(KeyError):
        schedules()["platau"]
    assert "platau" not in schedules()
    assert schedules().get("platau") is None


def test_private_modules_are_ignored_and_installed_packages_may_add_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "_shared.py").write_text("")
    (folder / "visible.py").write_text("")
    zigzag = Path(constant.__file__).read_text().replace('"batches"', '"full"')
    (tmp_path / "zigzag.py").write_text(zigzag)
    info = tmp_path / "zigzag-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zigzag\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[driftline.schedules]\nzigzag = zigzag\nplateau = zigzag\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import trainers.schedules

    monkeypatch.setattr(trainers.schedules, "__path__", [*trainers.schedules.__path__, str(folder)])
    registry = Registry("trainers.schedules", "trainers.contracts.Schedule", "schedule")
    assert {"visible", "zigzag", "plateau"} <= set(registry)
    assert "_shared" not in registry
    assert len(registry) == len(list(registry))
    assert registry["zigzag"].LOSS_DATA == "full"
    assert registry["plateau"].__module__ == "trainers.schedules.plateau"
    sys.modules.pop("zigzag")
