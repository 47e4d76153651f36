"""Methods that also train on the server's data: limits, defaults, refused settings, packs and restarts."""

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.trial.document import parse

from .mixed import DIGITS, METHODS, models, problem, train


@pytest.mark.parametrize("name", ["one_way_transfer", "pooled_training", "all_on_client"])
def test_one_local_step_is_that_of_parallel_training(name):
    noisy = {**problem()[0], "gradient_noise": 0.4}
    one = {"given": noisy, "local_steps": 1, "server_lr": 0.05, "trial": {"batch_size": 3, "clients_per_round": 2}}
    found = models(name, 12, **one)
    np.testing.assert_allclose(found, models("parallel_training", 12, **one), rtol=0, atol=1e-13)
    assert np.abs(found - models(name, 12, **{**one, "given": problem()[0]})).max() > 1e-3


MIXED = ("parallel_training", "one_way_transfer", "two_way_transfer", "pooled_training", "all_on_client")


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


@pytest.mark.parametrize("name", ["parallel_training", "two_way_transfer"])
def test_defaults_follow_the_papers_ties(name):
    spec = parse(
        {
            "task": problem()[0],
            "method": {"name": name, "client_lr": 0.1, "delta_lr": 0.5, "local_steps": 7},
            "rounds": 1,
            "members": [{}, {"local_steps": 2, "federated_weight": 0.7}],
        }
    )
    assert spec.method.values["central_steps"] == (7, 2)
    assert spec.method.values["federated_weight"] == (0.5, 0.7)
    assert spec.method.values["central_weight"] == (0.5, pytest.approx(0.3))
    assert parse(spec.canonical).canonical == spec.canonical
    whole = models(name, 4, delta_lr=0.5, server_lr=None, local_steps=7)
    same = models(name, 4, delta_lr=0.5, server_lr=None, local_steps=7, central_lr=0.025, central_steps=7, merge_lr=1)
    np.testing.assert_array_equal(whole, same)
    tied = models(name, 4, server_lr=None, tied=True)
    np.testing.assert_array_equal(tied, models(name, 4, server_lr=0.05, central_lr=0.05))


BAD = [
    ({"task": {**DIGITS, "central": None}}, "task.central must be given for NAME, which trains on data of the server"),
    ({"task": {"name": "quadratic", "problem": "two_clients"}}, "task.central must be given for NAME"),
    (
        {"method": {"federated_weight": 0.6, "central_weight": 0.6}},
        "method.central_weight must be 1 - federated_weight, got",
    ),
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input(name, wrong, message):
    document = {"task": wrong.get("task", DIGITS), "rounds": 1}
    document["method"] = {"name": name, "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2, **wrong.get("method", {})}
    with pytest.raises(SpecError) as caught:
        parse(document)
    assert str(caught.value).startswith(message.replace("NAME", name))


@pytest.mark.parametrize("name", METHODS)
def test_local_epochs_do_not_tell_the_servers_work(name):
    needed = "central_batch_size" if name == "one_way_transfer" else "central_steps"
    with pytest.raises(SpecError, match=rf"^method\.{needed} must be given with local_epochs, got none"):
        train(name, 3, DIGITS, local_epochs=1, local_steps=None, trial={"batch_size": 9})
