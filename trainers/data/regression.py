"""Synthetic linear regression of clients that share one solution, at which all their losses vanish."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainers.problem import Examples

Array = NDArray[np.float64]
_NOISE = 0x401  # second seed of the label noise, next to the seed of the data


def gaussian(
    sizes: Sequence[int], eigenvalues: Array, orientation: str, label_noise: float, data_seed: int
) -> tuple[Examples, Array]:
    """Gaussian features whose covariance has the given eigenvalues, and targets x' w* + noise.

    One generator draws, in this order, the standard normal solution w*, then for each client a rotation of the axes of
    the covariance (if orientation is "random") and its standard normal features, which are scaled and rotated. A
    separate generator draws the label noise, so that features are the same with and without it.

    Args:
        sizes: number of examples of each client.
        eigenvalues: (d,) eigenvalues of the features' covariance, above 0.
        orientation: "same" axes for all clients, or "random" axes for each.
        label_noise: standard deviation of the noise of every target; 0 is interpolation.
        data_seed: the same numbers always give the same problem.

    Returns:
        The examples, and w*, (d,).
    """
    generator, noise = np.random.default_rng(data_seed), np.random.default_rng([data_seed, _NOISE])
    dimension, scales = len(eigenvalues), np.sqrt(eigenvalues)
    solution = generator.normal(size=dimension)
    features, targets = [], []
    for size in sizes:
        rotation = np.linalg.qr(generator.normal(size=(dimension, dimension)))[0] if orientation == "random" else None
        drawn = generator.normal(size=(size, dimension)) * scales
        client_features = drawn if rotation is None else drawn @ rotation
        features.append(client_features)
        targets.append(client_features @ solution + label_noise * noise.normal(size=size))
    counts = np.array(sizes, np.int64)
    offsets = np.cumsum(counts) - counts
    return Examples(np.concatenate(features), np.concatenate(targets), offsets, counts), solution


def least_squares(train: Examples, weights: Array) -> Array:
    """(d,) the minimizer of the weighted mean of the clients' mean losses; the one of least norm if there are several.

    Args:
        train: inputs (examples, d), targets (examples,).
        weights: (clients,) weights with sum 1.
    """
    rows = np.sqrt(np.repeat(weights / train.sizes, train.sizes))
    minimizer: Array = np.linalg.lstsq(train.inputs * rows[:, None], train.targets * rows, rcond=None)[0]
    return minimizer
