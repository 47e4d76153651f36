"""FedDyn with displaced gradients: by its definition, and without displacement."""

import numpy as np
import pytest

from .four_clients import FEDDYN, WEIGHTS, WORK, models, same, task
from .test_feddyn import FedDyn

ALIGNED = {**FEDDYN, "name": "aligned_feddyn", "displacement": 0.15}


class AlignedFedDyn(FedDyn):
    """Every gradient is taken at the displaced model, and the pull is to x."""

    def __init__(self, seed, size, prox, displacement):
        super().__init__(seed, size, prox)
        self.displacement = displacement

    def round(self, cohort, weights):
        self.offsets = np.zeros((4, 3))
        slopes = np.array([super(FedDyn, self).gradient(i, self.x) for i in cohort])
        self.offsets[cohort] = self.displacement * (slopes - weights @ slopes)
        super().round(cohort, weights)

    def gradient(self, client, at):
        return super().gradient(client, at + self.offsets[client])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_it_is_feddyn_with_every_gradient_displaced(size):
    method = {**ALIGNED, "server_lr": WORK["client_lr"]}
    found = models(method, 20, task(WEIGHTS), clients_per_round=size, seed=7)
    np.testing.assert_allclose(found, AlignedFedDyn(7, size, 0.4, 0.15).run(20), rtol=0, atol=1e-12)
    plain = models({**FEDDYN, "server_lr": WORK["client_lr"]}, 20, task(WEIGHTS), clients_per_round=size, seed=7)
    assert (np.abs(found - plain).max() > 1e-2) == (size > 1)


@pytest.mark.parametrize("source", ["full", "batch"])
def test_without_displacement_it_is_feddyn(source):
    same({**ALIGNED, "displacement": 0.0, "displacement_source": source}, FEDDYN)
