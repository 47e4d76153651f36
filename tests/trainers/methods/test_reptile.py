"""Reptile is FedAvg."""

from .four_clients import WORK, same


def test_reptile_is_fedavg():
    same({"name": "reptile", **WORK}, {"name": "fedavg", **WORK})
