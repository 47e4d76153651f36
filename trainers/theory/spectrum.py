"""The effect of local work on one eigenvalue of a client's Hessian.

A client with Hessian eigenvalue e, client rate c, proximal strength p and gradient weights w_1, w_2, ... returns the
gradient of a surrogate whose eigenvalue is e * q(e), with the distortion

    q(e) = sum_k w_k (1 - s)^(k-1),    s = c (e + p).

Charles & Konecny [A], equations (6), (10), (12) and Lemma 9; the longer version [B], equations (8), (17), (18). Instead
of powers, all functions compute a sign and a logarithm, which are exact up to rounding for up to a million local steps,
for rates down to 1e-300, and also above s = 1, where powers change sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.theory.weights import Weights, all_steps, last_step

Array = NDArray[np.float64]
LN2 = float(np.log(2.0))


def log_distortion(eigenvalues: Any, client_lr: Any, weights: Weights, prox: Any = 0.0) -> tuple[Array, Array]:
    """Sign and logarithm of the distortion q of every eigenvalue ([A] Lemma 9).

    Args:
        eigenvalues: Hessian eigenvalues, any shape, above 0.
        client_lr: client rate, at least 0, broadcasts; 0 gives the sum of the weights.
        weights: gradient weights.
        prox: proximal strength, at least 0, broadcasts; 0 is no proximal term.

    Returns:
        sign (-1, 0 or 1) and log|q| (-inf where q is 0), in the broadcast shape.

    Examples:
        >>> sign, log = log_distortion(2.0, 0.25, all_steps(2))
        >>> float(sign), round(float(np.exp(log)), 12)
        (1.0, 1.5)
    """
    shift = np.asarray(client_lr, float) * (np.asarray(eigenvalues, float) + np.asarray(prox, float))
    if weights.local_steps == 1:
        sign, log = np.ones_like(shift), np.zeros_like(shift)
    elif weights.pattern == "all":
        sign, log = _log_geometric_sum(shift, weights.local_steps)
    elif weights.pattern == "last":
        sign, log = _log_power(shift, weights.local_steps - 1)
    else:
        return _log_polynomial(shift, weights.values)
    return sign, log + np.log(weights.scale)


def distortion(eigenvalues: Any, client_lr: Any, weights: Weights, prox: Any = 0.0) -> Array:
    """The distortion q itself ([A] (6)); arguments as in `log_distortion`.

    Examples:
        >>> float(distortion(1.0, 0.0, all_steps(10)))
        10.0
    """
    sign, log = log_distortion(eigenvalues, client_lr, weights, prox)
    with np.errstate(over="ignore"):
        value = sign * np.exp(log)
    if weights.pattern != "all":
        return np.asarray(value)
    shift = np.asarray(client_lr, float) * (np.asarray(eigenvalues, float) + np.asarray(prox, float))
    direct = weights.scale * _geometric_sum(np.minimum(shift, 1.0), weights.local_steps)
    return np.asarray(np.where(shift > 1, value, direct))


def phi(eigenvalues: Any, client_lr: Any, local_steps: int, prox: Any = 0.0) -> Array:
    """Eigenvalue of the surrogate when all steps count ([A] (10), [B] (17), (18)).

    phi(e) = e / (e + prox) * (1 - (1 - client_lr (e + prox))^K) / client_lr, and K e at client_lr = 0.

    Args:
        eigenvalues: Hessian eigenvalues, any shape, above 0.
        client_lr: client rate, at least 0.
        local_steps: K.
        prox: proximal strength.

    Examples:
        >>> float(phi(2.0, 1e-300, 10**6)), float(phi(2.0, 0.5, 7))
        (2000000.0, 2.0)
    """
    return np.asarray(eigenvalues, float) * distortion(eigenvalues, client_lr, all_steps(local_steps), prox)


def psi(eigenvalues: Any, client_lr: Any, local_steps: int, prox: Any = 0.0) -> Array:
    """Eigenvalue of the surrogate when only the last step counts ([A] (12)): (1 - client_lr (e + prox))^(K-1) e.

    Args:
        eigenvalues: Hessian eigenvalues, any shape, above 0.
        client_lr: client rate, at least 0.
        local_steps: K.
        prox: proximal strength.

    Examples:
        >>> float(psi(2.0, 0.25, 3))
        0.5
    """
    return np.asarray(eigenvalues, float) * distortion(eigenvalues, client_lr, last_step(local_steps), prox)


def log_one_minus_exp(exponent: Any) -> Array:
    """log(1 - exp(exponent)) for exponent <= 0, exact to rounding at both ends.

    Examples:
        >>> abs(float(log_one_minus_exp(-np.inf))), round(float(log_one_minus_exp(-1e-300)), 6)
        (0.0, -690.775528)
    """
    exponent = np.asarray(exponent, float)
    with np.errstate(divide="ignore"):
        near = np.log(-np.expm1(exponent))
        return np.asarray(np.where(exponent > -LN2, near, np.log1p(-np.exp(exponent))))


def _log_power(shift: Array, power: int) -> tuple[Array, Array]:
    """Sign and logarithm of (1 - shift)^power."""
    if power == 0:
        return np.ones_like(shift), np.zeros_like(shift)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = power * np.where(shift < 1, np.log1p(-np.minimum(shift, 1.0)), np.log(np.abs(shift - 1)))
    return _sign_of_power(shift, power), log


def _sign_of_power(shift: Array, power: int) -> Array:
    sign = np.sign(1 - shift)
    return sign if power % 2 else np.abs(sign)


def _log_geometric_sum(shift: Array, steps: int) -> tuple[Array, Array]:
    """Sign and logarithm of (1 - (1 - shift)^steps) / shift; steps at shift 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_inside = np.log(_geometric_sum(np.minimum(shift, 1.0), steps))
        exponent = steps * np.log(np.maximum(shift - 1, 0.0))  # of |1 - shift|^steps, where shift > 1
        if steps % 2:
            sign_beyond, log_beyond = np.ones_like(shift), np.logaddexp(0.0, exponent)
        else:
            sign_beyond = -np.sign(exponent)
            log_beyond = np.maximum(exponent, 0.0) + log_one_minus_exp(-np.abs(exponent))
        log_beyond = log_beyond - np.log(np.where(shift > 1, shift, 1.0))
    return np.where(shift > 1, sign_beyond, 1.0), np.where(shift > 1, log_beyond, log_inside)


def _geometric_sum(shift: Array, steps: int) -> Array:
    """(1 - (1 - shift)^steps) / shift for shift in [0, 1]; steps at shift 0."""
    with np.errstate(divide="ignore"):
        summed = -np.expm1(steps * np.log1p(-shift)) / np.where(shift > 0, shift, 1.0)
    return np.asarray(np.where(shift > 0, summed, float(steps)))


def _log_polynomial(shift: Array, values: tuple[float, ...]) -> tuple[Array, Array]:
    """Sign and logarithm of sum_k values[k] (1 - shift)^k.

    Leading zeros are factored out as a power; outside the unit circle the reversed polynomial is evaluated at the
    inverse.
    """
    leading = next(k for k, value in enumerate(values) if value > 0)
    sign, log = _log_power(shift, leading)
    kept = values[leading:]
    ratio = 1 - shift
    outside = np.abs(ratio) > 1
    inverse = 1 / np.where(outside, ratio, 1.0)
    factor = np.where(outside, np.polyval(np.array(kept), inverse), np.polyval(np.array(kept[::-1]), ratio))
    sign_out, log_out = _log_power(shift, len(kept) - 1)
    with np.errstate(divide="ignore"):
        log_factor = np.log(np.abs(factor))
    sign_factor = np.sign(factor) * np.where(outside, sign_out, 1.0)
    return sign * sign_factor, log + log_factor + np.where(outside, log_out, 0.0)
