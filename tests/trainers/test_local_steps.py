"""The settings that all methods with local steps share, and those that a method withdraws with a reason."""

import dataclasses

import numpy as np
import pytest

from trainers.engine.local.work import LocalSteps, ServerSteps
from trainers.errors import SpecError
from trainers.hyperparameters import describe, withdrawals
from trainers.registry import methods
from trainers.run import run
from trainers.trial.document import parse

from .documents import wrong

SHARED = ["client_lr", "server_lr", "local_steps", "local_epochs", "weight_decay", "clip_norm"]
WITHDRAWN = [(name, setting) for name, method in methods().items() for setting in withdrawals(method.Hyper)]
DIGITS = {"name": "digits", "clients": 6, "partition": {"dirichlet": 0.3}}


def models(method, **trial):
    """(rounds + 1, parameters)."""
    given = {"task": DIGITS, "method": method, "rounds": 3, "batch_size": 20, "dtype": "float64", "report": ["params"]}
    return np.array([line["params"] for line in run({**given, **trial})])


def test_the_shared_settings_are_these():
    assert sorted(item.name for item in describe(LocalSteps)) == sorted(SHARED)
    assert not withdrawals(LocalSteps)


def test_methods_share_all_that_they_can():
    """A method with these settings of its own would miss the next one that all get."""
    for name, method in methods().items():
        offered, withdrawn = {item.name for item in describe(method.Hyper)}, withdrawals(method.Hyper)
        assert issubclass(method.Hyper, ServerSteps), name
        assert issubclass(method.Hyper, LocalSteps) == ({"client_lr", "local_steps"} <= offered), name
        assert not offered & withdrawn.keys(), name
        if issubclass(method.Hyper, LocalSteps):
            assert offered | withdrawn.keys() >= set(SHARED), name
            assert ("server_lr" in withdrawn) == method.TIED, name


@pytest.mark.parametrize(("name", "setting"), WITHDRAWN, ids="-".join)
def test_a_withdrawn_setting_is_refused_by_name_with_its_reason(name, setting):
    own = methods()[name].Hyper
    assert setting in {field.name for field in dataclasses.fields(LocalSteps)}
    needed = {item.name: [1.0] if item.kind == "floats" else 1 for item in describe(own) if item.required}
    task = {"name": "quadratic", "hessians": [[[1.0]]], "centers": [[0.0]]}
    document = {"task": {**task, "central": {"hessian": [[1.0]], "center": [0.0]}}, "rounds": 1}
    document["task"] = document["task"] if methods()[name].CENTRAL else task
    parse({**document, "method": {"name": name, **needed}})
    reason = f"{name} ties server_lr to client_lr" if setting == "server_lr" else withdrawals(own)[setting]
    given = {**document, "method": {"name": name, **needed, setting: 1}}
    error = wrong(given)
    assert error.path == f"method.{setting}"
    assert str(error).startswith(f"method.{setting} must be left out")
    assert str(error).endswith(reason)
    with pytest.raises(SpecError, match=rf"^members\.1\.{setting} must be left out.*{reason}$"):
        parse({**document, "method": {"name": name, **needed}, "members": [{}, {setting: 1}]})


def test_lookahead_passes_over_its_clients_data_as_reptile_with_one_client():
    method = {"client_lr": 0.1, "server_lr": 0.05, "local_epochs": 2, "weight_decay": 0.1, "clip_norm": 0.5}
    found = models({"name": "lookahead", **method})
    np.testing.assert_array_equal(found, models({"name": "reptile", **method}, clients_per_round=1))
    assert np.abs(found[-1] - found[0]).max() > 1e-3
