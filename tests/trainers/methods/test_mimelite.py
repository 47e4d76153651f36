"""MimeLite: FedAvg without momentum, and the server's momentum with one local step."""

import numpy as np
import pytest

from .four_clients import WORK, models, same


@pytest.mark.parametrize("more", [{}, {"weight_decay": 0.2}])
def test_mimelite_without_momentum_is_fedavg(more):
    same({"name": "mimelite", **WORK, "momentum": 0.0, **more}, {"name": "fedavg", **WORK, **more})


def test_mimelite_with_one_step_is_the_servers_momentum_a_round_late():
    """d = (1 - momentum) g + momentum m, m of the rounds before: the new momentum itself."""
    held = {"name": "mimelite", "client_lr": 0.0, "server_lr": 0.1, "local_steps": 1, "momentum": 0.6}
    found = models(held, 10)
    wanted = models({"name": "fedsgd", "server_lr": 0.1 * 0.4}, 10, server={"name": "sgd", "momentum": 0.6})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
