"""Local SGD averages the clients' models: FedAvg with tied rates."""

from .four_clients import same


def test_local_sgd_is_fedavg_with_tied_rates():
    work = {"client_lr": 0.05, "local_steps": 4}
    same({"name": "local_sgd", **work}, {"name": "fedavg", "server_lr": 0.05, **work})
