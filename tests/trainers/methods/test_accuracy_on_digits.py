"""Methods that also train on the server's data learn digits."""

import pytest

from .mixed import DIGITS, METHODS, train


@pytest.mark.parametrize("name", ["pooled_training", "all_on_client"])
def test_comparators_learn_digits(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    line = train(name, 40, DIGITS, client_lr=0.3, server_lr=0.3, local_steps=5, trial=trial)[-1]
    assert line["test_accuracy"] > 0.9


@pytest.mark.parametrize("name", METHODS)
def test_digits_with_a_tenth_of_the_examples_at_the_server(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    merge = {"merge_by": "mean"} if name == "two_way_transfer" else {}
    line = train(name, 40, DIGITS, client_lr=0.3, server_lr=0.3, local_steps=5, **merge, trial=trial)[-1]
    assert line["test_accuracy"] > 0.9
    assert line["exchanges"] == 40


@pytest.mark.parametrize("name", ["parallel_training", "two_way_transfer"])
def test_adam_at_the_server_learns_digits(name):
    trial = {"batch_size": 10, "clients_per_round": 4, "dtype": "float32"}
    own = {"central": {"name": "adam"}, "central_lr": 0.01, "merge": {"name": "sgd", "momentum": 0.5}}
    line = train(name, 40, DIGITS, client_lr=0.2, server_lr=0.2, local_steps=5, merge_by="mean", **own, trial=trial)[-1]
    assert line["test_accuracy"] > 0.85
