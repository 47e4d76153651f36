"""Local updates with any weights: FedAvg and FedProx as limits; other weights are in test_closed_forms.py."""

from .four_clients import RATES, WORK, same


def test_all_ones_is_fedavg_and_with_prox_fedprox():
    ones = {"name": "local_update", **RATES, "gradient_weights": [1, 1, 1, 1]}
    same(ones, {"name": "fedavg", **WORK})
    same({**ones, "prox": 0.7}, {"name": "fedprox", **WORK, "prox": 0.7})
