"""What a task hands to the engine: a model by name, federated data and what is known of the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CLIENTS = 10_000_000
"""The most clients of a synthetic task."""

MOST_DRAWN = 100_000_000
"""The most numbers of a synthetic task: 0.8 GB. Random matrices of this size take minutes to draw."""


@dataclass(frozen=True)
class Examples:
    """Examples of all clients, concatenated: client i owns rows offsets[i] .. offsets[i] + sizes[i].

    Args:
        inputs: (examples, ...) floats; for classification already scaled.
        targets: (examples,) class numbers (int64) or regression targets (float).
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client, at least 1.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]  # (clients,)
    sizes: NDArray[np.int64]  # (clients,)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.sizes)


@dataclass(frozen=True)
class Quadratics:
    """Client losses 0.5 (x - center)' hessian (x - center) + constant.

    Args:
        hessians: (clients, d, d) symmetric positive definite.
        centers: (clients, d).
        constants: (clients,) added to each loss.
        gradient_noise: standard deviation of the noise that one example adds to each gradient coordinate; 0 is exact.
    """

    hessians: NDArray[np.float64]  # (clients, d, d)
    centers: NDArray[np.float64]  # (clients, d)
    constants: NDArray[np.float64]  # (clients,)
    gradient_noise: float = 0.0

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.centers)


@dataclass(frozen=True)
class Problem:
    """One task, ready to train.

    Args:
        model: name of a module in trainers/models ("quadratic", "softmax", "linear", ...).
        train: the clients' data.
        test: held-out examples, grouped by test client; None where there are none.
        central: the server's own data (mixed federated learning), as of a single client; None where there are none.
        client_weights: (clients,) sum 1, the task's own weights; None is uniform.
        optimum: (d,) minimizer of the weighted mean loss where it is known in closed form.
        model_settings: what the model needs besides the data (number of classes, weight of L2, ...).
    """

    model: str
    train: Examples | Quadratics
    test: Examples | None = None
    central: Examples | Quadratics | None = None
    client_weights: NDArray[np.float64] | None = None
    optimum: NDArray[np.float64] | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict)
