"""Parallel training ends beside the minimizer."""

import numpy as np

from .mixed import models, problem


def test_parallel_training_ends_beside_the_minimizer():
    given, hessians, centers, own, center = problem(equal=True)
    a, c, p, q = hessians[0] / 2, own / 2, centers.mean(0), center
    best = np.linalg.solve(a + c, a @ p + c @ q)
    eye = np.eye(3)
    biases = []
    for rate, steps in ((0.05, 4), (0.01, 4), (0.05, 1)):
        qa, qc = (eye - np.linalg.matrix_power(eye - rate * held, steps) for held in (a, c))
        wanted = np.linalg.solve(qa + qc, qa @ p + qc @ q)
        found = models("parallel_training", 900, given, client_lr=rate, server_lr=rate, local_steps=steps)[-1]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
        biases.append(found - best)
    assert np.linalg.norm(biases[0]) > 1e-2
    first = 0.01 * 3 / 2 * np.linalg.solve(a + c, (a - c) @ a @ (best - p))
    assert np.linalg.norm(biases[1] - first) < 0.05 * np.linalg.norm(first)
    assert np.linalg.norm(biases[2]) < 1e-12
