"""Mime: SCAFFOLD without momentum, and gradient descent with one local step."""

import numpy as np
import pytest

from .four_clients import COHORT, DIGITS, INIT, WORK, models, same, task


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_mime_without_momentum_is_scaffold_on_full_batches(decay):
    work = {**WORK, "weight_decay": decay}
    same({"name": "mime", **work, "momentum": 0.0}, {"name": "scaffold", **work}, DIGITS, batch_size=None)
    same({"name": "mime", **work, "momentum": 0.0}, {"name": "scaffold", **work}, task(), init=INIT)


def test_one_step_of_mime_is_gradient_descent_whatever_the_batches():
    """grad f_i(x; batch) is taken away from itself: only the mean of full gradients is left."""
    one = {"name": "mime", "client_lr": 0.3, "server_lr": 0.1, "local_steps": 1, "momentum": 0.0}
    found = models(one, 6, DIGITS, **{**COHORT, "init": None})
    wanted = models({"name": "fedsgd", "server_lr": 0.1}, 6, DIGITS, **{**COHORT, "init": None, "batch_size": None})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
