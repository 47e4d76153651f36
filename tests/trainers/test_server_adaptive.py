"""Adaptive optimizers on the server: the units of their settings, and what is refused."""

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.registry import optimizers
from trainers.trial.document import parse

from .methods import three_clients


def document(name, **server):
    method = {"name": "fedavg", "client_lr": 0.05, "server_lr": 0.07, "local_steps": 4}
    return three_clients.document(method, server={"name": name, **server}, rounds=30)


@pytest.mark.parametrize("name", ["adam", "yogi", "adagrad", "rmsprop"])
def test_delta_lr_is_the_rate_along_the_mean_change(name):
    """The same trial with the units of the change: settings divided by client_lr and its square."""
    own = {} if name == "rmsprop" else {"initial_accumulator": 0.02}
    given = document(name, epsilon=0.01, **own)
    given["members"] = [{"client_lr": 0.05, "delta_lr": 0.3}, {"client_lr": 0.02, "delta_lr": 0.1}]
    del given["method"]["server_lr"]
    spec = parse(given)
    assert parse(spec.canonical).canonical == spec.canonical
    lines = Pack.from_spec(spec).advance()
    for index, member in enumerate(given["members"]):
        rate = member["client_lr"]
        twin = document(name, epsilon=0.01 / rate, **{key: value / rate / rate for key, value in own.items()})
        twin["method"] |= {"client_lr": rate, "server_lr": member["delta_lr"]}
        wanted = [line["params"] for line in Pack.from_spec(parse(twin)).advance()]
        np.testing.assert_allclose([line["params"] for line in lines if line["member"] == index], wanted, atol=1e-12)
        along = document(name, epsilon=0.01, along="change", **own)
        along["method"] = twin["method"]
        assert parse(along).canonical == parse(twin).canonical


MIXED = {"name": "parallel_training", "client_lr": 0.1, "local_steps": 2}
FEDSGD = {"name": "fedsgd", "client_lr": None, "local_steps": None}
CHANGE = {"name": "adam", "along": "change"}


@pytest.mark.parametrize(
    ("method", "roles", "message"),
    [
        ({"delta_lr": 1}, {"server": {"name": "adam", "along": "gradient"}}, "method.delta_lr must be left out with"),
        ({"delta_lr": 1, "client_lr": 0}, {"server": {"name": "yogi"}}, "method.delta_lr must come with a client_lr"),
        ({"server_lr": 1, "client_lr": 0}, {"server": CHANGE}, "method.client_lr must be above 0 with server.along: c"),
        ({**FEDSGD, "server_lr": 1}, {"server": CHANGE}, "pseudo-gradient, got none"),
        ({"delta_lr": 1}, {"server": {"name": "sgd", "along": "change"}}, 'unknown key "along" in server'),
        ({"server_lr": 1}, {"client": CHANGE}, 'unknown key "along" in client'),
        (
            {"server_lr": 1, "client_lr": 1e-200},
            {"server": {**CHANGE, "initial_accumulator": 1}},
            "server.initial_accumulator must be a number in units of the gradient too",
        ),
        ({**MIXED, "delta_lr": 1}, {"server": {"name": "adam"}}, "method.central_lr must be given with server adam"),
        ({**MIXED, "delta_lr": 1}, {"central": {"name": "yogi"}}, "method.central_lr must be given with central yogi"),
        ({**MIXED, "server_lr": 1}, {"server": CHANGE}, "method.central_lr must be given with server adam"),
    ],
)
def test_rates_that_would_mean_something_else_are_refused(method, roles, message):
    given = document("sgd")
    del given["method"]["server_lr"]
    given["method"] = {key: item for key, item in {**given["method"], **method}.items() if item is not None}
    if method.get("name") == "parallel_training":
        given["task"]["central"] = {"hessian": [[1.0, 0.0], [0.0, 1.0]], "center": [0.0, 0.0]}
    with pytest.raises(ValueError, match=r"^(method|server|unknown)") as caught:
        parse({**given, **roles})
    assert message in str(caught.value)


def test_an_optimizer_of_unknown_units_takes_no_delta_lr(monkeypatch):
    monkeypatch.setattr(type(optimizers()["momentum"]), "LINEAR", False)
    given = document("momentum")
    given["method"] = {"name": "fedavg", "client_lr": 0.1, "delta_lr": 1, "local_steps": 2}
    with pytest.raises(ValueError, match=r"delta_lr must be left out with server momentum, got one: .*give server_lr"):
        parse(given)
