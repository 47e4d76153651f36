"""Pooled training: gradient descent on the whole loss, an exchange for every step."""

import numpy as np

from .mixed import DIGITS, models


def test_pooled_digits_are_one_data_set():
    """With full batches and weights by examples a step is along the mean over all clients' examples."""
    task = {**DIGITS, "clients": 6, "partition": {"dirichlet": 0.2}}
    pooled = models("pooled_training", 2, task, federated_weight=1, server_lr=0.05)
    alone = {"name": "digits", "clients": 1, "central": {"fraction": 0.1}}
    np.testing.assert_allclose(pooled, models("fedavg", 2, alone, server_lr=0.05), rtol=0, atol=1e-12)
