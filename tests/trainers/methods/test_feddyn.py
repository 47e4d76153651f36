"""FedDyn with some of the clients."""

import numpy as np
import pytest

from .four_clients import WEIGHTS, WORK, Papers, models, task


class FedDyn(Papers):
    """With all weights equal h moves by the sum of the changes over the number of all clients."""

    def __init__(self, seed, size, prox):
        super().__init__(seed, size)
        self.prox, self.h, self.slopes = prox, np.zeros(3), np.zeros((4, 3))

    def round(self, cohort, weights):
        pull = self.prox
        ends = self.ends(cohort, lambda i, y: self.gradient(i, y) - self.slopes[i] + pull * (y - self.x))
        self.slopes[cohort] -= pull * (ends - self.x)
        self.h = self.h - pull * self.p[cohort] @ (ends - self.x)
        self.x = weights @ ends - self.h / pull


@pytest.mark.parametrize("size", [1, 2, 3])
def test_feddyn_with_some_of_the_clients_is_the_papers(size):
    method = {"name": "feddyn", **WORK, "server_lr": WORK["client_lr"], "prox": 0.4}
    found = models(method, 20, task(WEIGHTS), clients_per_round=size, seed=7)
    np.testing.assert_allclose(found, FedDyn(7, size, 0.4).run(20), rtol=0, atol=1e-12)
