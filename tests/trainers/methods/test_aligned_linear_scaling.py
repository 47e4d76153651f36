"""Aligned linear scaling: its limit, and the mean of SGD over the clients to second order."""

import pytest

from trainers.methods import aligned_linear_scaling

from .alignment import ORDERS, RATES, UNEQUAL, slope
from .four_clients import same


def test_aligned_linear_scaling_with_client_lr_0_is_linear_scaling():
    linear = {"name": "linear_scaling", "server_lr": 0.02, "weight_decay": 0.1}
    same({**linear, "name": "aligned_linear_scaling", "client_lr": 0.0}, linear)


@pytest.mark.parametrize("weights", [None, UNEQUAL])
def test_aligned_linear_scaling_is_the_mean_sgd_to_second_order(clients, weights):
    mean = clients.sequential(RATES, ORDERS, weights)
    assert slope(clients.round(aligned_linear_scaling, RATES, weights=weights) - mean) == pytest.approx(3, abs=0.15)
