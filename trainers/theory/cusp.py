"""The curve of MAML at a fixed client rate: where it leaves FedAvg's curve, its cusp, and its end (derived).

If only the last of K steps counts, psi(e) = (1 - c (e + p))^(K-1) e has its peak at (1 - c p) / (c K). While the peak
lies above the smoothness, psi grows with e and the curve is that of FedAvg. For larger K the largest eigenvalue of the
surrogate lies inside the interval. When psi is equal at both ends, the condition number has a kink and the curve a
cusp, at the height of one-shot averaging: there b / a = kappa0 exactly. This explains Figures 5, 7, 8 and 10 of
Charles & Konecny [A].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainers.errors import SpecError
from trainers.theory.interval import Curvature
from trainers.theory.tradeoff import one_shot_suboptimality


@dataclass(frozen=True)
class Cusp:
    """Landmarks of the curve, in (fractional) numbers of local steps.

    Args:
        leaves_at: the curve leaves that of FedAvg: (1 - c p) / (c L).
        cusp_at: 1 + log(L / mu) / (log(1 - c (mu + p)) - log(1 - c (L + p))).
        last_phase_at: from here on the condition number is (b / a) / kappa0: (1 - c p) / (c mu).
        log_condition_number: at the cusp, for a dense spectrum.
        suboptimality: at the cusp, the same as for one-shot averaging.
    """

    leaves_at: float
    cusp_at: float
    last_phase_at: float
    log_condition_number: float
    suboptimality: float


def cusp(curvature: Curvature, client_lr: float, prox: float = 0.0) -> Cusp:
    """The landmarks of MAML's curve.

    Args:
        curvature: bounds of the Hessians, smoothness above strong_convexity.
        client_lr: client rate, above 0 and below 1 / (smoothness + prox).
        prox: proximal strength.

    Raises:
        SpecError: client_lr is outside its range, or smoothness equals strong_convexity.

    Examples:
        >>> at = cusp(Curvature(1, 10), 0.001)
        >>> round(at.cusp_at, 4), round(math.exp(at.log_condition_number), 6), round(at.suboptimality, 6)
        (255.4339, 1.86137, 0.519494)
    """
    low, high = curvature.strong_convexity, curvature.smoothness
    if not 0 < client_lr * (high + prox) < 1:
        raise SpecError(
            f"client_lr must be above 0 and below 1 / (L + prox) = {1 / (high + prox):g}, got client_lr={client_lr:g}",
            "client_lr",
        )
    if high == low:
        raise SpecError(f"L must be above mu={low:g} for a cusp, got L={high:g}", "L")
    log_low, log_high = math.log1p(-client_lr * (low + prox)), math.log1p(-client_lr * (high + prox))
    steps = 1 + curvature.log_condition_number / (log_low - log_high)
    peak = (1 - client_lr * prox) / (client_lr * steps)
    log_peak = (steps - 1) * math.log1p(-client_lr * (peak + prox)) + math.log(peak)
    log_end = (steps - 1) * log_low + math.log(low)
    return Cusp(
        (1 - client_lr * prox) / (client_lr * high),
        steps,
        (1 - client_lr * prox) / (client_lr * low),
        log_peak - log_end,
        one_shot_suboptimality(curvature),
    )
