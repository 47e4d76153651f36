"""FedSGD as a limit: of one local step, and of client_lr 0."""

import itertools

import pytest

from .trials import document, limit, same, train


@pytest.mark.parametrize("method", ["fedavg", "reptile", "fomaml", "minibatch_sgd", "minibatch_prox"])
def test_one_local_step_is_fedsgd(method):
    one = {"name": method, "client_lr": 0.1, "local_steps": 1}
    if method == "minibatch_sgd":
        one = {"name": method}
    if method == "minibatch_prox":
        one["prox"] = 2.0
    two = {"name": "fedsgd"}
    given = {"rounds": 4}
    lines = [train({**document(m["name"], **given), "method": {"server_lr": 0.05, **m}}) for m in (one, two)]
    for line in itertools.chain(*lines):
        line.pop("client_lr")
    same(*lines, tolerance=1e-12)


@pytest.mark.parametrize("method", ["fedavg", "reptile", "fedprox"])
def test_client_lr_zero_is_a_larger_batch(method):
    more = {"prox": 3.0} if method == "fedprox" else {}
    one = {"name": method, "client_lr": 0.0, "local_steps": 5, **more}
    limit(one, {"name": "fedsgd", "local_steps": 5})
