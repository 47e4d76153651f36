"""Predicted curves are what packs measure, round by round."""

import itertools

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.tasks import quadratic
from trainers.theory import prediction
from trainers.theory.families import two_clients
from trainers.theory.prediction import METRICS, predictor
from trainers.theory.setting_point import setting_point
from trainers.trial.document import parse

TASKS = {
    "random": {
        "name": "quadratic",
        "problem": "random",
        "clients": 4,
        "dimension": 3,
        "client_weights": [0.1, 0.2, 0.3, 0.4],
    },
    "worst case": {"name": "quadratic", "problem": "worst_case", "client_lr": 0.05, "gradient_weights": [1.0] * 10},
    "continuum": {"name": "quadratic", "problem": "continuum", "clients": 20},
}
METHODS = [
    {"name": "fedavg", "client_lr": 0.05, "server_lr": 0.03, "local_steps": 7},
    {"name": "fedavg", "client_lr": 0.05, "delta_lr": 1.0, "local_steps": 7, "weight_decay": 0.1},
    {"name": "fedavg", "client_lr": 0.03, "tied": True, "local_steps": 4},
    {"name": "local_sgd", "client_lr": 0.03, "local_steps": 4},
    {"name": "minibatch_prox", "client_lr": 0.05, "server_lr": 0.03, "local_steps": 5, "prox": 0.5},
    {"name": "minibatch_sgd", "server_lr": 0.05},
    {"name": "fedavg", "client_lr": 0.0, "server_lr": 0.02, "local_steps": 3},
    {"name": "local_update", "client_lr": 0.03, "server_lr": 0.05, "gradient_weights": [0, 1.0, 1.0], "prox": 1.0},
]
SERVERS = [
    {"name": "sgd"},
    {"name": "sgd", "momentum": 0.6},
    {"name": "sgd", "momentum": 0.6, "nesterov": True},
    {"name": "momentum"},
    {"name": "nesterov", "momentum": 0.6},
]


def measured(task, method, server, init, rounds):
    document = {"task": task, "method": method, "server": server, "init": init, "rounds": rounds, "eval_every": 1}
    lines = Pack.from_spec(parse(document), device="cpu").advance()
    return {metric: np.array([line[metric] for line in lines]) for metric in METRICS}


def known(task):
    return predictor(quadratic.build(quadratic.parse(task, "task"), "float64"))


# Tasks and servers take turns: a method's map knows neither.
TURNS = [*zip(METHODS, itertools.cycle(TASKS.values()), itertools.cycle(SERVERS))]


@pytest.mark.parametrize(("method", "task", "server"), TURNS)
def test_the_whole_curve_is_predicted(method, task, server):
    about = known(task)
    init = [3.0, -2.0, 1.0][: about.clients.dimension]
    setting = about.setting(method, server)
    curves = measured(task, method, server, init, 40)
    for metric, values in curves.items():
        predicted = about.curves([setting], init, 40, metric)[0]
        assert predicted == pytest.approx(values, rel=1e-11, abs=1e-11 * abs(values[0]))


MIXED = {
    **TASKS["random"],
    "central": {"hessian": [[3.0, 0.5, 0.0], [0.5, 2.0, 0.2], [0.0, 0.2, 1.0]], "center": [1.0, -1.0, 2.0]},
}
BRANCH = {"client_lr": 0.05, "server_lr": 0.03, "local_steps": 4}
MIXED_METHODS = [
    {"name": "parallel_training", **BRANCH},
    {"name": "parallel_training", **BRANCH, "central_lr": 0.07, "central_steps": 2, "merge_by": "mean"},
    {"name": "parallel_training", **BRANCH, "federated_weight": 1.0, "central_batch_size": 7},
    {"name": "parallel_training", "client_lr": 0.04, "tied": True, "local_steps": 3, "merge_lr": 0.7},
    {"name": "one_way_transfer", **BRANCH, "central_weight": 0.3},
    {"name": "one_way_transfer", **BRANCH, "federated_weight": 1.0},
    {"name": "two_way_transfer", **BRANCH, "central_lr": None, "central_steps": None},
    {"name": "two_way_transfer", **BRANCH, "warm_start": True, "federated_weight": 0.8},
    {"name": "two_way_transfer", **BRANCH, "merge_by": "mean", "warm_start": True, "central_steps": 7},
    {"name": "fedavg", **BRANCH},
]


@pytest.mark.parametrize(("method", "server"), [*zip(MIXED_METHODS, itertools.cycle(SERVERS), strict=False)])
def test_curves_and_limits_of_mixed_methods_are_predicted(method, server):
    about = known(MIXED)
    setting = about.setting(method, server)
    curves = measured(MIXED, method, server, [3.0, -2.0, 1.0], 40)
    for metric, values in curves.items():
        predicted = about.curves([setting], [3.0, -2.0, 1.0], 500, metric)[0]
        assert predicted[:41] == pytest.approx(values, rel=1e-11, abs=1e-11 * abs(values[0]))
        assert about.values(setting.limit, metric) == pytest.approx(predicted[-1], rel=1e-9)
    weighted = {"federated_weight": 0.5, **{key: value for key, value in method.items() if value is not None}}
    weighted = method if method["name"] == "fedavg" else weighted
    if "central_weight" in weighted:
        weighted.pop("federated_weight")
    point = setting_point(about.clients, weighted, server, about.central)
    assert point.rate == pytest.approx(setting.rate, abs=1e-12)
    assert point.surrogate_optimum == pytest.approx(setting.limit, rel=1e-12)


def test_lookahead_is_predicted_on_one_client():
    task = {"name": "quadratic", "problem": "random", "clients": 1, "dimension": 3}
    method = {"name": "lookahead", "client_lr": 0.05, "server_lr": 0.03, "local_steps": 5}
    values = measured(task, method, SERVERS[1], None, 40)["loss"]
    about = known(task)
    predicted = about.curves([about.setting(method, SERVERS[1])], None, 40, "loss")[0]
    assert predicted == pytest.approx(values, rel=1e-11)


def test_tied_rates_leave_no_room_for_another():
    with pytest.raises(SpecError, match="left out with tied"):
        known(TASKS["random"]).setting({**METHODS[0], "tied": True}, {"name": "sgd"})


def test_constants_of_the_losses_count():
    about = known(TASKS["continuum"])  # losses 0.5 i x^2 - x
    assert about.values([0.0], "loss") == pytest.approx(0.0, abs=1e-14)
    curvature = about.clients.hessians.mean()
    assert about.values(about.clients.optimum, "loss") == pytest.approx(-0.5 / curvature, rel=1e-13)


def test_many_settings_at_once_are_as_each_alone(monkeypatch):
    about = known(TASKS["random"])
    settings = [about.setting(method, server) for method in METHODS for server in SERVERS]
    together = about.curves(settings, None, 40, "loss")
    monkeypatch.setattr(prediction, "CHUNK", 1)
    assert about.curves(settings, None, 40, "loss") == pytest.approx(together, rel=1e-13)
    assert about.curves([], None, 40, "loss").shape == (0, 41)


def test_a_diverging_setting_is_followed_beyond_all_numbers():
    about = known(TASKS["continuum"])
    wild = about.setting({"name": "fedsgd", "server_lr": 1e5}, {"name": "sgd"})
    assert wild.rate > 1
    curve = about.curves([wild], [1.0], 200, "loss")[0]
    assert np.isfinite(curve[:20]).all()
    assert not np.isfinite(curve[-1])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_round_that_overflows_has_an_infinite_rate(momentum):
    method = {"name": "fedavg", "client_lr": 2.0, "server_lr": 0.5, "local_steps": 1000}
    server = {"name": "sgd", "momentum": momentum}
    wild = known({"name": "quadratic", "problem": "two_clients"}).setting(method, server)
    assert wild.rate == np.inf
    assert np.isnan(wild.limit).all()
    point = setting_point(two_clients(), method, server)
    assert (point.rate, point.best_rate) == (np.inf, None)


@pytest.mark.parametrize(
    ("method", "server", "schedule", "words"),
    [
        (METHODS[0], {"name": "adam"}, "constant", 'sgd, momentum, nesterov for a closed form, got "adam"'),
        (METHODS[0], {"name": "mine"}, "constant", "server must be one of sgd"),
        (METHODS[0], {"name": "sgd"}, "plateau", "rates must stay constant"),
        ({**METHODS[0], "local_epochs": 2}, {"name": "sgd"}, "constant", "local_epochs must be null"),
        ({"name": "mine"}, {"name": "sgd"}, "constant", "closed form"),
        ({**METHODS[0], "name": "one_way_transfer"}, {"name": "sgd"}, "constant", "needs a central loss"),
    ],
)
def test_what_has_no_closed_form_says_so(method, server, schedule, words):
    with pytest.raises(SpecError, match=words):
        known(TASKS["continuum"]).setting(method, server, schedule)
