"""Where plug-ins state that a hyperparameter changes nothing, curves are equal to the bit."""

from typing import Any

import pytest

from trainers import inactive, inactive_rules
from trainers.hyperparameters import Hyperparameter
from trainers.registry import Registry, methods, optimizers, schedules
from trainers.trial.parts import offered
from trainers.trial.roles import settings

from .trials import IGNORED, alone, document, train

RATES = {"client_lr", "server_lr"}  # what a trial says of its rates
STATED = [
    (name, hyperparameter, condition)
    for name, method in methods().items()
    for hyperparameter, conditions in method.INACTIVE.items()
    for condition in conditions
]
OF_OPTIMIZERS = [
    (role, name, setting, condition)
    for name, optimizer in optimizers().items()
    for setting, conditions in optimizer.INACTIVE.items()
    for condition in conditions
    for role in (("client",) if "local_steps" in condition else ("client", "server"))
    if setting in {item.name for item in settings(optimizer, role)} and role not in optimizer.REFUSED
]


def others(item: Hyperparameter, value: Any) -> list[Any]:
    """Two other values of a hyperparameter."""
    if item.choices:
        return [choice for choice in item.choices if choice != value]
    if item.kind == "bool":
        return [not value]
    return [0.7, 0.013] if item.kind == "float" else [2, 3]


def lines(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in IGNORED | RATES} for line in train(given)]


def names(given: dict[str, Any]) -> dict[str, str]:
    parts = ("method", "client", "server", "central", "merge", "schedule")
    return {kind: given[kind]["name"] for kind in parts if kind in given}


def values(given: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{kind}.{name}".removeprefix("method."): value
        for kind in names(given)
        for name, value in given[kind].items()
        if name != "name"
    }


def check(given: dict[str, Any], dotted: str, item: Hyperparameter) -> None:
    """That the rules name the hyperparameter, and that other values give the same lines."""
    own = values(given)
    assert dotted in inactive(inactive_rules(names(given), own.keys()), own)
    first = lines(given)
    assert all(line["train_loss"] is not None for line in first[1:])
    for value in others(item, own[dotted]):
        assert lines(alone(given, {dotted: value})) == first


def setting(module: Any, kind: str, name: str) -> Hyperparameter:
    return next(item for item in offered(module, kind) if item.name == name)


@pytest.mark.parametrize("data", ["quadratic", "digits"])
@pytest.mark.parametrize(("method", "hyperparameter", "condition"), STATED)
def test_of_methods(method: str, hyperparameter: str, condition: dict[str, Any], data: str) -> None:
    digits = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}}
    given = document(method, task=digits if data == "digits" else None, rounds=4)
    item = setting(methods()[method], "method", hyperparameter)
    check(alone(given, {hyperparameter: others(item, None)[0]} | condition), hyperparameter, item)


@pytest.mark.parametrize(("role", "optimizer", "name", "condition"), OF_OPTIMIZERS)
def test_of_optimizers(role: str, optimizer: str, name: str, condition: dict[str, Any]) -> None:
    item = setting(optimizers()[optimizer], role, name)
    given = {**document("fedavg"), role: {"name": optimizer}}
    stated = {"local_steps" if key == "local_steps" else f"{role}.{key}": value for key, value in condition.items()}
    dotted = f"{role}.{name}"
    check(alone(given, {dotted: others(item, item.default)[0]} | stated), dotted, item)


@pytest.mark.parametrize("rate", sorted(RATES))
def test_of_schedules(rate: str) -> None:
    replacing = [name for name, schedule in schedules().items() if schedule.RATES == "replaced"]
    assert replacing
    for name in replacing:
        check(document("fedavg", schedule=name), rate, setting(methods()["fedavg"], "method", rate))


@pytest.mark.parametrize(
    ("more", "free"),
    [
        ({}, ("client_lr", "prox")),
        ({"delta_lr": 1.0}, ("prox",)),
        ({"server.along": "change"}, ("prox",)),
        ({"client.momentum": 0.9}, ("client_lr", "prox", "client.momentum")),
    ],
)
def test_client_lr_counts_where_something_else_uses_it(more: dict[str, Any], free: tuple[str, ...]) -> None:
    own = {"client_lr": 0.1, "prox": 0.0, "local_steps": 1, **more}
    for schedule in ("constant", "plateau"):
        named = {"method": "fedprox", "client": "momentum", "server": "adam", "schedule": schedule}
        wanted = tuple(name for name in free if schedule == "constant" or name != "client_lr")
        assert inactive(inactive_rules(named, own.keys()), own) == wanted


def test_rules_are_read_without_importing_modules_and_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(registry: Registry[Any], name: str) -> None:
        raise AssertionError(f"{registry.package}.{name} must not be imported")

    monkeypatch.setattr(Registry, "__getitem__", fail)
    named = {"method": "fedprox", "client": "momentum", "server": "sgd", "schedule": "constant"}
    assert inactive_rules(named, ["client_lr", "prox", "local_steps"])["client_lr"] == [{"local_steps": 1}]


def test_of_two_zeros_only_one_is_free() -> None:
    rules = {"a": [{"b": 0}], "b": [{"a": 0}]}
    assert inactive(rules, {"a": 0, "b": 0}) == ("a",)
    assert inactive(rules, {"a": 1, "b": 0}) == ("a",)
