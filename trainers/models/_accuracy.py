"""Helpers of evaluations: weights of examples for the full loss, and the distribution of accuracy over clients."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.problem import Examples

PERCENTILES = (10, 50, 90)


def row_weights(
    rows: int, offsets: NDArray[np.int64], sizes: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weight of each example in the weighted mean of the clients' mean losses.

    Args:
        rows: number of examples.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.
        weights: (clients,).

    Returns:
        (rows,) weights[client] / sizes[client].
    """
    by_row = np.zeros(rows)
    for offset, size, weight in zip(offsets.tolist(), sizes.tolist(), weights.tolist(), strict=True):
        by_row[offset : offset + size] += weight / size
    return by_row


def sampled(test: Examples, clients: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """(rows of some test clients, and the offsets and sizes of these clients within the rows).

    Args:
        test: the test examples.
        clients: indices of the clients.
    """
    sizes = test.sizes[clients]
    rows = np.concatenate([test.offsets[client] + np.arange(test.sizes[client]) for client in clients.tolist()])
    return torch.as_tensor(rows), np.cumsum(sizes) - sizes, sizes


def client_shares(right: Tensor, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> Tensor:
    """The accuracy of each client.

    Args:
        right: (T, rows), 1 for correct predictions.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.

    Returns:
        (T, clients) float64.
    """
    counts = torch.nn.functional.pad(right.double().cumsum(1), (1, 0))
    starts = torch.as_tensor(offsets, device=right.device)
    lengths = torch.as_tensor(sizes, device=right.device)
    return (counts[:, starts + lengths] - counts[:, starts]) / lengths


def client_accuracy(shares: Tensor) -> dict[str, Tensor]:
    """Statistics of the accuracy over clients, which have equal weight, (T,) each.

    Args:
        shares: (T, clients) float64.

    Returns:
        client_accuracy_mean, _std (population standard deviation), _p10, _p50 and _p90 (percentiles, linearly
        interpolated).
    """
    statistics = {
        "client_accuracy_mean": shares.mean(1),
        "client_accuracy_std": shares.std(1, correction=0),
    }
    for percent in PERCENTILES:
        statistics[f"client_accuracy_p{percent}"] = torch.quantile(shares, percent / 100, dim=1)
    return statistics
