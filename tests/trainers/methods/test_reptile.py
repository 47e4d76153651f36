"""Reptile is FedAvg."""

from .trials import limit


def test_reptile_is_fedavg():
    work = {"client_lr": 0.1, "local_steps": 4}
    limit({"name": "reptile", **work}, {"name": "fedavg", **work})
