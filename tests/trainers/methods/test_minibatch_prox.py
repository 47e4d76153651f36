"""Mini-batch prox is FedProx, and Reptile without prox."""

from .four_clients import WORK, same


def test_minibatch_prox_is_fedprox_and_without_prox_reptile():
    same({"name": "minibatch_prox", **WORK, "prox": 0.7}, {"name": "fedprox", **WORK, "prox": 0.7})
    same({"name": "minibatch_prox", **WORK, "prox": 0.0}, {"name": "reptile", **WORK})
