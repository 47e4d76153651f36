"""Parallel training ends beside the minimizer."""

import numpy as np
import pytest

from .mixed import models, problem


@pytest.mark.parametrize(("rate", "steps", "bias"), [(0.05, 4, True), (0.05, 1, False)])
def test_parallel_training_ends_beside_the_minimizer(rate, steps, bias):
    """A round leaves its closed form alone; how its bias begins is in tests/theory/test_rounds_mixed.py."""
    given, hessians, centers, own, center = problem(equal=True)
    a, c, p, q = hessians[0] / 2, own / 2, centers.mean(0), center
    qa, qc = (np.eye(3) - np.linalg.matrix_power(np.eye(3) - rate * held, steps) for held in (a, c))
    settled = np.linalg.solve(qa + qc, qa @ p + qc @ q)
    method = {"client_lr": rate, "server_lr": rate, "local_steps": steps, "trial": {"init": settled.tolist()}}
    np.testing.assert_allclose(models("parallel_training", 2, given, **method)[-1], settled, rtol=0, atol=1e-13)
    best = np.linalg.solve(a + c, a @ p + c @ q)
    assert (np.linalg.norm(settled - best) > 1e-2) == bias
