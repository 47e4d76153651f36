"""Mini-batch prox is FedProx, and Reptile without prox."""

from .trials import limit


def test_minibatch_prox_is_fedprox_and_without_prox_reptile():
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "minibatch_prox", **work, "prox": 0.7}, {"name": "fedprox", **work, "prox": 0.7})
    limit({"name": "minibatch_prox", **work, "prox": 0.0}, {"name": "reptile", **work})
