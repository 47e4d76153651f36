"""The comparators of mixed federated learning: clients alone, all data in one place, all losses on the clients."""

import numpy as np
import pytest

from trainers.engine.packs.pack import Pack
from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.affine import with_server
from trainers.theory.rounds.central import central_quadratic
from trainers.theory.rounds.methods import round_map
from trainers.theory.rounds.mixed import all_on_client, pooled_training
from trainers.trial.document import parse

from .mixed import DIGITS, INIT, WEIGHTS, halved, models, problem, train

MIXED = ("parallel_training", "one_way_transfer", "two_way_transfer", "pooled_training", "all_on_client")
COSTS = ("exchanges", "bytes_down", "bytes_up", "client_gradients")


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_rounds_are_the_closed_forms(weights, momentum):
    given, hessians, centers, own, center = problem(weights=weights)
    held = client_quadratics(hessians, centers, np.full(4, 0.25) if weights is None else np.array(weights))
    clients, central = halved(held, central_quadratic(own, center), 0.7)
    trial = {"server": {"name": "sgd", "momentum": momentum}}
    for form in (pooled_training, all_on_client):
        affine = form(clients, central, client_lr=0.05, local_steps=4)
        found = models(form.__name__, 25, given, federated_weight=0.7, trial=trial)
        np.testing.assert_allclose(found, with_server(affine, 0.04, momentum).after(INIT, 25), rtol=0, atol=1e-12)
        method = {"name": form.__name__, "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4}
        named = round_map({**method, "federated_weight": 0.7}, held, trial["server"], central_quadratic(own, center))
        np.testing.assert_allclose(found, named.after(INIT, 25), rtol=0, atol=1e-12)


def test_pooled_training_is_gradient_descent_on_the_whole_loss_and_finds_its_minimizer():
    given, hessians, centers, own, center = problem()
    whole = hessians.mean(0) / 2 + own / 2
    pull = np.einsum("ijk,ik->j", hessians, centers) / 8 + own @ center / 2
    x, wanted = np.array(INIT), [INIT]
    for _ in range(10):
        for _ in range(4):
            x = x - 0.05 * (whole @ x - pull)
        wanted.append(x)
    found = models("pooled_training", 400, given, server_lr=0.05)
    np.testing.assert_allclose(found[:11], wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found[-1], np.linalg.solve(whole, pull), rtol=0, atol=1e-12)


def test_one_local_step_is_the_same_for_all_but_two_way_transfer():
    noisy = {**problem()[0], "gradient_noise": 0.4}
    one = {"given": noisy, "local_steps": 1, "server_lr": 0.05, "trial": {"batch_size": 3, "clients_per_round": 2}}
    first = models("parallel_training", 12, **one)
    for name in ("one_way_transfer", "pooled_training", "all_on_client"):
        np.testing.assert_allclose(models(name, 12, **one), first, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("task", [None, DIGITS])
def test_federated_weight_1_trains_on_the_clients_alone(name, task):
    """The first comparator is any of the methods with federated_weight 1, or FedAvg itself."""
    trial = {"batch_size": 4, "clients_per_round": 3, "weighting": "uniform"}
    task = {**problem()[0], "gradient_noise": 0.3} if task is None else task
    own = {"central_lr": 0.0} if name == "two_way_transfer" else {}
    found = models(name, 4, task, federated_weight=1, **own, trial=trial)
    if name == "pooled_training":
        slow = models(name, 4, task, federated_weight=1, local_steps=1, trial=trial)
        fedsgd = {"server_lr": 0.04, "client_lr": None, "local_steps": 1, "trial": trial}
        np.testing.assert_allclose(slow, models("fedsgd", 4, task, **fedsgd), rtol=0, atol=1e-14)
    else:
        np.testing.assert_allclose(found, models("fedavg", 4, task, trial=trial), rtol=0, atol=1e-14)


def test_pooled_digits_are_one_data_set():
    """With full batches and weights by examples a step is along the mean over all clients' examples."""
    task = {**DIGITS, "clients": 6, "partition": {"dirichlet": 0.2}}
    pooled = models("pooled_training", 2, task, federated_weight=1, server_lr=0.05)
    alone = {"name": "digits", "clients": 1, "central": {"fraction": 0.1}}
    np.testing.assert_allclose(pooled, models("fedavg", 2, alone, server_lr=0.05), rtol=0, atol=1e-12)


def test_what_the_comparators_cost():
    trial = {"clients_per_round": 2}
    found = {
        name: [train(name, 3, trial=trial)[-1][key] for key in COSTS] for name in ("pooled_training", "all_on_client")
    }
    assert found["pooled_training"] == [3 * 4, 3 * 4 * 2 * 24, 3 * 4 * 2 * 24, 3 * 4 * 2]
    assert found["all_on_client"] == [3, 3 * 2 * 24, 3 * 2 * 24, 2 * 3 * 2 * 4]  # a formula is sent to nobody


def test_members_with_fewer_steps_cost_less():
    document = {
        "task": problem()[0],
        "method": {"name": "pooled_training", "client_lr": 0.05, "server_lr": 0.04, "local_steps": 4},
        "members": [{}, {"local_steps": 1}],
        "rounds": 3,
    }
    last = Pack.from_spec(parse(document)).advance()[-2:]
    assert [[line[key] for key in COSTS] for line in last] == [
        [12, 12 * 96, 12 * 96, 12 * 4],
        [3, 3 * 96, 3 * 96, 3 * 4],
    ]


def test_examples_of_the_server_are_sent_with_the_model():
    trial = {"batch_size": 5, "clients_per_round": 3, "dtype": "float32"}
    counted = {}
    for name, size in (("fedavg", None), ("all_on_client", 7), ("all_on_client", 14)):
        own = {} if size is None else {"central_batch_size": size}
        counted[size] = train(name, 2, DIGITS, **own, trial=trial)[-1]
    extra = [counted[size]["bytes_down"] - counted[None]["bytes_down"] for size in (7, 14)]
    assert extra[0] > 2 * 3 * 4 * 7 * 64 * 4  # rounds, clients, steps, examples of 64 numbers
    assert extra[1] == 2 * extra[0]
    assert counted[7]["bytes_up"] == counted[None]["bytes_up"]
    full = train("all_on_client", 2, DIGITS, trial={"clients_per_round": 3})[-1]["bytes_down"]
    longer = train("all_on_client", 2, DIGITS, local_steps=9, trial={"clients_per_round": 3})[-1]["bytes_down"]
    assert full == longer  # all of them once a round


@pytest.mark.parametrize("name", ["pooled_training", "all_on_client"])
def test_comparators_learn_digits(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    line = train(name, 40, DIGITS, client_lr=0.3, server_lr=0.3, local_steps=5, trial=trial)[-1]
    assert line["test_accuracy"] > 0.9


def test_client_optimizers_step_along_the_joined_losses():
    given, hessians, centers, own, center = problem()
    found = models("all_on_client", 6, given, client={"name": "momentum", "momentum": 0.7})
    x, wanted = np.array(INIT), [INIT]
    for _ in range(6):
        ends = []
        for hessian, held in zip(hessians, centers, strict=True):
            y, velocity = x, np.zeros(3)
            for _ in range(4):
                velocity = 0.7 * velocity + hessian @ (y - held) / 2 + own @ (y - center) / 2
                y = y - 0.05 * velocity
            ends.append((x - y) / 0.05)
        x = x - 0.04 * np.mean(ends, 0)
        wanted.append(x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


def test_a_client_is_sent_the_servers_examples_of_its_own_steps_alone():
    """With local_epochs clients of more examples take more steps: 64 numbers and a label each, an example."""
    trial = {"batch_size": 5, "clients_per_round": 3}
    epochs = {"local_steps": None, "local_epochs": 1}
    given = {**DIGITS, "partition": {"dirichlet": 0.2}}
    alone = train("fedavg", 2, given, **epochs, trial=trial)[-1]
    joined = train("all_on_client", 2, given, **epochs, central_batch_size=7, trial=trial)[-1]
    steps = alone["client_gradients"]
    one = train("all_on_client", 1, given, local_steps=1, central_batch_size=7, trial=trial)[-1]["bytes_down"]
    model = train("fedavg", 1, given, local_steps=1, trial=trial)[-1]["bytes_down"]
    assert joined["client_gradients"] == 2 * steps
    assert joined["bytes_down"] - alone["bytes_down"] == steps * (one - model) // 3
