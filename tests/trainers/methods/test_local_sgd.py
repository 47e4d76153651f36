"""Local SGD averages the clients' models: FedAvg with tied rates."""

import numpy as np
import pytest

from .four_clients import same
from .three_clients import START, WORK, clients_of, document, trained
from .trials import train


def test_local_sgd_is_fedavg_with_tied_rates():
    work = {"client_lr": 0.05, "local_steps": 4}
    same({"name": "local_sgd", **work}, {"name": "fedavg", "server_lr": 0.05, **work})


@pytest.mark.parametrize("size", [1, 2, 3])
def test_local_sgd_averages_locally_trained_models(size):
    lines = train(document({"name": "local_sgd", **WORK}, clients_per_round=size))
    x = np.array(START)
    for number, line in enumerate(lines[1:]):
        x = np.mean([trained(client, x) for client in clients_of(number, size)], 0)
        np.testing.assert_allclose(line["params"], x, rtol=0, atol=1e-12)
    assert all(line["server_lr"] == line["client_lr"] == 0.1 for line in lines)
