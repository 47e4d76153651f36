"""FedExP: FedAvg with a large epsilon, and never shorter steps than FedAvg's."""

import numpy as np

from trainers.theory.clients import client_quadratics
from trainers.theory.rounds.methods import fixed_point

from .four_clients import INIT, WORK, losses, models, same


def test_fedexp_with_a_large_epsilon_is_fedavg():
    same({"name": "fedexp", **WORK, "epsilon": 1e9}, {"name": "fedavg", **WORK})


def test_fedexp_never_shrinks_a_step_and_settles_with_fedavg():
    fedavg = {"name": "fedavg", **WORK}
    clients = client_quadratics(*losses())
    extrapolated = models({"name": "fedexp", **WORK, "epsilon": 1e-3}, 1)
    plain = models(fedavg, 1)
    one, two = extrapolated[1] - INIT, plain[1] - INIT
    assert np.linalg.norm(one) >= np.linalg.norm(two)
    np.testing.assert_allclose(one / np.linalg.norm(one), two / np.linalg.norm(two), atol=1e-13)
    end = models({"name": "fedexp", **WORK, "epsilon": 1e-1}, 600)[-1]
    np.testing.assert_allclose(end, fixed_point(fedavg, clients), atol=1e-9)
