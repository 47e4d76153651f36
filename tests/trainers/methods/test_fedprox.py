"""FedProx: FedAvg without prox; its rounds are in test_closed_forms.py."""

from .four_clients import WORK, same


def test_fedprox_without_prox_is_fedavg():
    same({"name": "fedprox", **WORK, "prox": 0.0}, {"name": "fedavg", **WORK})
