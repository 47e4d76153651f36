"""Statements of the papers that do not hold, each with numerical evidence.

Each function returns a list of rows; `python -m trainers.theory counterexample NAME` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trainers.theory.distance_bounds import corollary_22, corollary_22_corrected, lemma_5, lemma_12
from trainers.theory.families import rotated_pair, steep_coordinates, two_clients
from trainers.theory.interval import Curvature, log_condition_number
from trainers.theory.rates import best_parameters
from trainers.theory.surrogate import surrogate
from trainers.theory.weights import all_steps

Row = dict[str, float | int | str | bool]


@dataclass(frozen=True)
class Counterexample:
    """A statement that does not hold.

    Args:
        statement: what the paper says.
        finding: what is true instead.
        rows: a function that computes the evidence.
    """

    statement: str
    finding: str
    rows: Callable[[], list[Row]]


def lemma5() -> list[Row]:
    """Distances beyond the bound of [A] Lemma 5: two rotated clients, then a hundred with commuting Hessians."""
    cases = [("rotated pair", L, rotated_pair(L, angle)) for L, angle in ((10.0, 0.3), (1e3, 0.1), (1e4, 0.05))]
    cases.append(("100 steep coordinates", 1e6, steep_coordinates(1e6, 100)))
    rows: list[Row] = []
    for name, smoothness, clients in cases:
        distorted = surrogate(clients, 0.5 / smoothness, all_steps(int(50 * smoothness)))
        distance = float(distorted.distance)
        rows.append(
            {
                "problem": name,
                "L": smoothness,
                "distance": distance,
                "conjectured_2C": float(lemma_12(distorted)),
                "lemma5_8C": float(lemma_5(distorted)),
                "violates_conjecture": bool(distance > lemma_12(distorted)),
                "violates_lemma5": bool(distance > lemma_5(distorted)),
            }
        )
    return rows


def corollary22() -> list[Row]:
    """Hessians 1 and 2 with client_lr 0.01 / K: the distance stays, while the printed bound falls like 1 / K."""
    clients = two_clients()
    rows: list[Row] = []
    for steps in (10, 100, 1000, 10000):
        client_lr = 0.01 / steps
        distance = float(surrogate(clients, client_lr, all_steps(steps)).distance)
        printed = float(corollary_22(clients, 0.0, client_lr))
        rows.append(
            {
                "local_steps": steps,
                "distance": distance,
                "printed": printed,
                "corrected": float(corollary_22_corrected(clients, 0.0, client_lr, steps)),
                "violates_printed": distance > printed,
            }
        )
    return rows


def momentum() -> list[Row]:
    """Error over (rate^T times the initial error), on diag(1, 10) from (1, 1): with momentum it grows beyond 1."""
    eigenvalues = np.array([1.0, 10.0])
    rows: list[Row] = []
    for server in ("sgd", "nesterov", "heavy_ball"):
        best = best_parameters(server, 1.0, 10.0)
        params, before = np.ones(2), np.ones(2)
        for rounds in range(1, 200):
            ahead = params + best.momentum * (params - before)
            point = ahead if best.nesterov else params
            params, before = ahead - best.server_lr * eigenvalues * point, params
            if rounds in (10, 50, 199):
                factor = np.linalg.norm(params) / (best.rate**rounds * np.sqrt(2))
                rows.append(
                    {
                        "server": server,
                        "rounds": rounds,
                        "error_over_bound": float(factor),
                        "violates": bool(factor > 1 + 1e-6),
                    }
                )
    return rows


def prox() -> list[Row]:
    """Condition number by [A] (11), mu = 1, L = 10, client_lr 0.05: falls with prox at K = 2, grows at K = 10, 1000."""
    rows: list[Row] = []
    for steps in (2, 10, 1000):
        values = [
            float(np.exp(log_condition_number(Curvature(1, 10), 0.05, all_steps(steps), strength)))
            for strength in (0.0, 0.5, 1.0, 5.0)
        ]
        named: Row = {f"prox_{strength}": value for strength, value in zip(("0", "0.5", "1", "5"), values, strict=True)}
        rows.append({"local_steps": steps, **named, "violates": values[-1] > values[0]})
    return rows


COUNTEREXAMPLES = {
    "lemma5": Counterexample(
        "[A] Lemma 5, Theorem 4, Corollary 1: the optima are at most 8 C (sqrt b - sqrt a) / (sqrt b + sqrt a) apart, "
        "in any dimension (conjecture: 2 C).",
        "True, with 2 C, in one dimension (Lemma 12). In two dimensions or more the distance grows without bound; "
        "[B] Theorems 16 and 17 hold.",
        lemma5,
    ),
    "corollary22": Counterexample(
        "[B] Corollary 22 (and so Theorem 29): the optima of two client rates are at most "
        "2 center_spread L^3 / mu^2 (difference of the rates) apart.",
        "The factor local_steps - 1 is missing; with it the statement holds.",
        corollary22,
    ),
    "prox": Counterexample(
        "[A] section 4.1: a larger proximal strength lowers the surrogate's condition number.",
        "True if only the last step counts. If all steps count, at a fixed client rate, it is the opposite once there "
        "are more than a few local steps.",
        prox,
    ),
    "momentum": Counterexample(
        "[A] Theorem 3: |x_T - limit| <= rate^T |x_0 - limit| for SGD, Nesterov and heavy ball.",
        "Exact for SGD; with momentum only the asymptotic rate holds, because a factor grows linearly with T.",
        momentum,
    ),
}
