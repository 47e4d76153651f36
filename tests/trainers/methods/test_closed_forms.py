"""Whole trials on quadratics follow the theory: rounds are its closed forms.

Where these maps settle is tested without trials, in tests/theory.
"""

import numpy as np
import pytest

from trainers.theory.clients import client_quadratics
from trainers.theory.rounds import mixed as mixed_forms
from trainers.theory.rounds.affine import with_server
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import round_map

from . import mixed
from .four_clients import FEDDYN, INIT, RATES, STORED, WEIGHTS, WORK, losses, models, task, train
from .mixed import METHODS, halved, problem

FEDGA = {"name": "fedga", **WORK, "displacement": 0.2}
MAML = {"name": "maml", **WORK}
CLOSED = [
    {"name": "scaffold", **WORK},
    {"name": "scaffold", **WORK, "correction": 0.5, "weight_decay": 0.3},
    {"name": "scaffold", **WORK, "displacement_source": "batch"},
    FEDGA,
    {**FEDGA, "displacement_form": "each_step", "weight_decay": 0.3},
    {**FEDGA, "displacement_source": "batch", "weight_decay": 0.3},
    {"name": "gradalign", "server_lr": 0.1, "displacement": 0.2},
    {"name": "gradalign", "server_lr": 0.1, "displacement": 0.2, "displacement_source": "full", "weight_decay": 0.3},
    STORED,
    {**STORED, "correction": 0.5, "weight_decay": 0.3},
    {**STORED, "variate_update": "gradient"},
    {**STORED, "variate_update": "gradient", "displacement_source": "batch", "weight_decay": 0.3},
    FEDDYN,
    {"name": "feddyn", **WORK, "server_lr": 0.05, "prox": 0.4, "weight_decay": 0.3},
    {"name": "mimelite", **WORK, "momentum": 0.7},
    {"name": "mimelite", **WORK, "gradient_source": "batch", "weight_decay": 0.3},
    {"name": "mime", **WORK, "momentum": 0.7},
    {"name": "mime", **WORK, "gradient_source": "batch", "weight_decay": 0.3},
    {**FEDGA, "reuse_mean_gradient": True},
    {**FEDGA, "reuse_mean_gradient": True, "prox": 0.4, "weight_decay": 0.3},
    {**FEDGA, "prox": 0.4},
    {**FEDGA, "prox": 0.4, "displacement_form": "each_step", "weight_decay": 0.3},
    {"name": "fomaml", **WORK, "prox": 0.4},
    {"name": "fedavg", **WORK, "weight_decay": 0.3},
    {"name": "fedprox", **WORK, "prox": 0.4},
    {"name": "fedsgd", "server_lr": 0.1, "weight_decay": 0.3},
    {"name": "local_update", **RATES, "prox": 0.4, "gradient_weights": [0.3, 0.0, 2.0, 1.5, 0.1]},
    {"name": "local_update", "client_lr": 0.0, "server_lr": 0.04, "gradient_weights": [0.0, 2.0, 1.0]},
    {**MAML, "prox": 0.8},
    {**MAML, "prox": 0.8, "weight_decay": 0.2, "unbiased": True},
    {**MAML, "local_steps": 1, "weight_decay": 0.2},
    {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.2},
    {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": 0.2, "weight_decay": 0.3},
    {"name": "linear_scaling", "server_lr": 0.02},
    {"name": "aligned_linear_scaling", "client_lr": 0.03, "server_lr": 0.02, "weight_decay": 0.3},
]


@pytest.mark.parametrize("method", CLOSED)
@pytest.mark.parametrize(
    ("weights", "server"),
    [(WEIGHTS, {"name": "sgd"}), (None, {"name": "sgd", "momentum": 0.5, "nesterov": True})],
    ids=["weights", "nesterov"],
)
def test_rounds_follow_the_closed_form(method, weights, server):
    clients = client_quadratics(*losses(), weights)
    wanted = round_map(method, clients, server).after(INIT, 12)
    found = models(method, 12, task(weights), server=server)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
    assert np.abs(found[12] - found[11]).max() > 1e-4


GOLDEN = {
    "name": "quadratic",
    "hessians": [[[1.0, 0.0], [0.0, 10.0]], [[5.5, 4.5], [4.5, 5.5]]],
    "centers": [[1.0, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize(
    ("method", "minimizer", "distance"),
    [
        ({"name": "fedavg", "client_lr": 0.05, "local_steps": 10}, (0.550125, 0.315285), 0.269231),
        ({"name": "fedprox", "client_lr": 0.05, "local_steps": 10, "prox": 1.0}, (0.562790, 0.296942), 0.247641),
        ({"name": "fomaml", "client_lr": 0.005, "local_steps": 10}, (0.686151, 0.180725), 0.078869),
        ({"name": "fedsgd"}, (0.7515528, 0.1366460), 0.0),
    ],
)
def test_golden_matrix_case(method, minimizer, distance):
    server_lr = 0.1 if method["name"] in ("fomaml", "fedsgd") else 0.05
    line = train({**method, "server_lr": server_lr}, 100, GOLDEN, init=None, eval_every=100)[-1]
    assert line["params"] == pytest.approx(minimizer, abs=1e-6)
    assert line["distance"] == pytest.approx(distance, abs=1e-6)


BRANCH = {"central_lr": 0.07, "central_steps": 3, "merge_lr": 0.8}
WITH_CENTRAL = [
    ("parallel_training", BRANCH),
    ("one_way_transfer", {}),
    ("two_way_transfer", BRANCH),
    ("pooled_training", {}),
    ("all_on_client", {}),
]


@pytest.mark.parametrize(("name", "branch"), WITH_CENTRAL)
@pytest.mark.parametrize(("weights", "weight", "momentum"), [(None, 0.5, 0.6), (None, 0.2, 0.0), (WEIGHTS, 0.2, 0.6)])
def test_rounds_with_central_data_follow_the_closed_form(name, branch, weights, weight, momentum):
    given, hessians, centers, own, center = problem(weights=weights)
    clients, central = halved(client_quadratics(hessians, centers, weights), central_quadratic(own, center), weight)
    trial = {"server": {"name": "sgd", "momentum": momentum}}
    form = getattr(mixed_forms, name)(clients, central, client_lr=0.05, local_steps=4, **branch)
    wanted = with_server(form, 0.04, momentum).after(INIT, 25)
    found = mixed.models(name, 25, given, federated_weight=weight, **branch, trial=trial)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
    if branch:
        by_mean = {**branch, "merge_lr": 1.6, "merge_by": "mean"}
        found = mixed.models(name, 25, given, central_weight=1 - weight, **by_mean, trial=trial)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("name", [*METHODS, "all_on_client", "pooled_training"])
def test_weight_decay_is_a_part_of_the_clients_losses(name, weight):
    given, hessians, centers, own, center = problem()
    clients, central = client_quadratics(hessians, centers), central_quadratic(own, center)
    method = {"federated_weight": weight, "weight_decay": 0.4, "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4}
    starts = [{}, {"warm_start": True}] if name == "two_way_transfer" else [{}]
    for more in starts:
        wanted = round_map({"name": name, **method, **more}, clients, central=central).after(INIT, 10)
        np.testing.assert_allclose(mixed.models(name, 10, given, **method, **more), wanted, rtol=0, atol=1e-10)
