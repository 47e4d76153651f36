"""Constants and hyperparameters of MaSS on interpolating linear regression, and its bound.

"Exponential Convergence of FedAvg with MaSS for Linear Regression Problem with 0 Loss", after Liu & Belkin, with a
corrected rate. A device has features with second-moment matrix H; its smoothness and strong convexity are the largest
and the smallest non-zero eigenvalue of H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError

Array = NDArray[np.float64]
RANK_TOLERANCE = 1e-12


@dataclass(frozen=True)
class SampleConstants:
    """Condition quantities of one device.

    Args:
        smoothness: L.
        strong_convexity: mu, the smallest non-zero eigenvalue.
        sample_smoothness: L_1, the smallest with E[|x|^2 x x'] <= L_1 H.
        statistical_condition_number: kappa~, the smallest with E[(x' H^-1 x) x x'] <= kappa~ H.
    """

    smoothness: float
    strong_convexity: float
    sample_smoothness: float
    statistical_condition_number: float


@dataclass(frozen=True)
class BatchConstants:
    """Condition quantities of one device at a batch size.

    Args:
        batch_smoothness: L_m = L_1 / m + (m - 1) L / m.
        batch_condition_number: kappa_m = L_m / mu.
        batch_statistical_condition_number: kappa~_m = kappa~ / m + (m - 1) / m, at least 1.
        strong_convexity: mu.
    """

    batch_smoothness: float
    batch_condition_number: float
    batch_statistical_condition_number: float
    strong_convexity: float


@dataclass(frozen=True)
class MassHyperparameters:
    """MaSS in its two-sequence and its three-sequence form; both describe the same steps.

    Args:
        client_lr: gradient step of the model sequence (eta1 = eta).
        momentum: gamma = (1 - mixing) / (1 + mixing); 0 is SGD.
        compensation_lr: eta2 = (client_lr - mixing auxiliary_lr) / (1 + mixing); 0 is Nesterov.
        mixing: alpha = (1 - momentum) / (1 + momentum); 1 with auxiliary_lr = client_lr is SGD.
        auxiliary_lr: delta; client_lr / mixing is Nesterov.
    """

    client_lr: float
    momentum: float
    compensation_lr: float
    mixing: float
    auxiliary_lr: float


def sample_constants(features: Any, weight_decay: float = 0.0) -> SampleConstants:
    """The constants of a device's data.

    With weight_decay the matrix of an example is x x' + weight_decay I instead of x x', and H is their mean.

    Args:
        features: (examples, d).
        weight_decay: at least 0; 0 is none.

    Raises:
        SpecError: the features are not a matrix, or all 0.
    """
    data = np.asarray(features, float)
    if data.ndim != 2 or not np.isfinite(data).all():
        raise SpecError(f"features must be a finite matrix (examples, d), got shape {data.shape}", "features")
    eigenvalues, vectors = np.linalg.eigh(data.T @ data / len(data))
    eigenvalues = eigenvalues + weight_decay
    kept = eigenvalues > RANK_TOLERANCE * max(eigenvalues[-1], 0.0)
    if not kept.any():
        raise SpecError("features must not all be 0", "features")
    eigenvalues = eigenvalues[kept]
    whitened = data @ vectors[:, kept] / np.sqrt(eigenvalues)  # its second moment is the identity without weight_decay
    share = weight_decay / eigenvalues  # share of weight_decay in H
    return SampleConstants(
        float(eigenvalues[-1]),
        float(eigenvalues[0]),
        _largest_weighted(whitened, np.sum(data**2, axis=1), weight_decay * (2 * (1 - share) + share)),
        _largest_weighted(whitened, np.sum(whitened**2, axis=1), 2 * share * (1 - share) + share**2),
    )


def gaussian_constants(covariance: Any) -> SampleConstants:
    """The constants of Gaussian features with this covariance: L_1 = trace + 2 L, kappa~ = d + 2 (derived).

    Args:
        covariance: (d, d) positive definite.

    Examples:
        >>> gaussian_constants([[1.0, 0.0], [0.0, 0.25]])
        SampleConstants(smoothness=1.0, strong_convexity=0.25, sample_smoothness=3.25, statistical_condition_number=4.0)
    """
    eigenvalues = np.linalg.eigvalsh(np.asarray(covariance, float))
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if not low > 0:
        raise SpecError(f"covariance must be positive definite, got smallest eigenvalue {low:g}", "covariance")
    return SampleConstants(high, low, float(eigenvalues.sum()) + 2 * high, len(eigenvalues) + 2.0)


def batch_constants(sample: SampleConstants, batch_size: float) -> BatchConstants:
    """The constants at a batch size of at least 1; inf is the full batch.

    Examples:
        >>> batch_constants(SampleConstants(1.0, 0.5, 3.0, 4.0), 2).batch_statistical_condition_number
        2.5
    """
    if not batch_size >= 1:
        raise SpecError(f"batch_size must be at least 1, got batch_size={batch_size:g}", "batch_size")
    share = 1 / batch_size
    smoothness = sample.sample_smoothness * share + (1 - share) * sample.smoothness
    statistical = sample.statistical_condition_number * share + (1 - share)
    return BatchConstants(smoothness, smoothness / sample.strong_convexity, statistical, sample.strong_convexity)


def common_constants(devices: Sequence[BatchConstants]) -> BatchConstants:
    """Constants that are valid for all devices: largest L_m and kappa~_m, smallest mu (derived)."""
    smoothness = max(device.batch_smoothness for device in devices)
    convexity = min(device.strong_convexity for device in devices)
    statistical = max(device.batch_statistical_condition_number for device in devices)
    return BatchConstants(smoothness, smoothness / convexity, statistical, convexity)


def of_common_convexity(devices: Sequence[BatchConstants]) -> list[BatchConstants]:
    """Each device's own L_m and kappa~_m, with the smallest mu of all.

    Their `best_hyperparameters` differ by device but have the same auxiliary_lr / mixing = 1 / mu, as the proof of
    Theorem 1 needs at a synchronisation. A step multiplies the Lyapunov value by at most 1 - smallest mixing (derived).
    """
    mu = min(device.strong_convexity for device in devices)
    return [
        replace(device, batch_condition_number=device.batch_smoothness / mu, strong_convexity=mu) for device in devices
    ]


def best_hyperparameters(constants: BatchConstants) -> MassHyperparameters:
    """client_lr = 1 / L_m, mixing = 1 / sqrt(kappa_m kappa~_m), auxiliary_lr = client_lr / (mixing kappa~_m).

    The parameters of Theorem 1; kappa~_m = 1, the full batch, gives Nesterov's.
    """
    client_lr = 1 / constants.batch_smoothness
    statistical = constants.batch_statistical_condition_number
    mixing = 1 / np.sqrt(constants.batch_condition_number * statistical)
    return from_three_sequences(client_lr, float(mixing), float(client_lr / (mixing * statistical)))


def from_three_sequences(client_lr: float, mixing: float, auxiliary_lr: float) -> MassHyperparameters:
    """Both forms from (client_lr, mixing, auxiliary_lr).

    Examples:
        >>> from_three_sequences(0.5, 1.0, 0.5).momentum
        0.0
    """
    if not 0 < mixing <= 1:
        raise SpecError(f"mixing must be in (0, 1], got mixing={mixing:g}", "mixing")
    compensation = (client_lr - mixing * auxiliary_lr) / (1 + mixing)
    return MassHyperparameters(client_lr, (1 - mixing) / (1 + mixing), compensation, mixing, auxiliary_lr)


def from_two_sequences(client_lr: float, momentum: float, compensation_lr: float) -> MassHyperparameters:
    """Both forms from (client_lr, momentum, compensation_lr).

    Examples:
        >>> from_two_sequences(0.5, 0.0, 0.0).auxiliary_lr
        0.5
    """
    if not 0 <= momentum < 1:
        raise SpecError(f"momentum must be in [0, 1), got momentum={momentum:g}", "momentum")
    mixing = (1 - momentum) / (1 + momentum)
    auxiliary = (client_lr - (1 + mixing) * compensation_lr) / mixing
    return MassHyperparameters(client_lr, momentum, compensation_lr, mixing, auxiliary)


def keeps_rate(hyperparameters: MassHyperparameters, constants: BatchConstants) -> bool:
    """Whether each step multiplies the expected Lyapunov value by 1 - mixing or less: both conditions of the proof.

    Derived: auxiliary_lr >= mixing / mu and mixing auxiliary_lr kappa~_m <= client_lr (2 - client_lr L_m).
    """
    mass, slack = hyperparameters, 1 + 1e-12
    first = mass.auxiliary_lr * slack >= mass.mixing / constants.strong_convexity
    allowed = mass.client_lr * (2 - mass.client_lr * constants.batch_smoothness)
    second = mass.mixing * mass.auxiliary_lr * constants.batch_statistical_condition_number <= allowed * slack
    return bool(first and second)


def expected_distance_bound(mixing: float, steps: Any, start_sq: float) -> Array:
    """2 (1 - mixing)^t |w_0 - w*|^2: bound on the expected squared distance of the mean model after t steps.

    Holds for common parameters that keep the rate, invertible Hessians and w_0 = v_0. The bound does not depend on the
    number of local steps between synchronisations (derived from Theorem 1, whose printed form lacks the exponent).
    """
    return 2 * np.exp(np.asarray(steps, float) * np.log1p(-mixing)) * start_sq if mixing < 1 else np.zeros_like(steps)


def _largest_weighted(whitened: Array, weights: Array, diagonal: Array) -> float:
    moment = (whitened * weights[:, None]).T @ whitened / len(whitened)
    return float(np.linalg.eigvalsh(moment + np.diag(diagonal))[-1])
