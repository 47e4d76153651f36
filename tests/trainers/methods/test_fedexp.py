"""FedExP: FedAvg with a large epsilon; its steps are in test_numbers_by_hand.py."""

from .four_clients import WORK, same


def test_fedexp_with_a_large_epsilon_is_fedavg():
    same({"name": "fedexp", **WORK, "epsilon": 1e9}, {"name": "fedavg", **WORK})
