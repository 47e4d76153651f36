"""Linear scaling: FedSGD at a larger rate, and the mean of SGD over the clients to first order."""

import numpy as np
import pytest

from trainers.methods import linear_scaling

from .alignment import ORDERS, RATES, UNEQUAL, slope
from .four_clients import COHORT, models, task


def test_linear_scaling_is_fedsgd_at_a_larger_rate():
    linear = {"name": "linear_scaling", "server_lr": 0.02, "weight_decay": 0.1}
    larger = {**linear, "name": "fedsgd", "server_lr": 0.06}  # three clients a round
    found, wanted = (models(method, 5, task(noise=0.3), **COHORT) for method in (linear, larger))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", [None, UNEQUAL])
def test_linear_scaling_is_the_mean_sgd_to_first_order(clients, weights):
    mean = clients.sequential(RATES, ORDERS, weights)
    assert slope(clients.round(linear_scaling, RATES, weights=weights) - mean) == pytest.approx(2, abs=0.15)
