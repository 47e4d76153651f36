"""Optuna's Gaussian processes among configurations that break no constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

__all__ = ["Within"]


class Within(optuna.samplers.GPSampler):
    """Proposes the configuration that promises most; if it breaks a constraint, the best one of some candidates.

    Args:
        seed: Seed of its random draws.
        keeps: Whether parameters break no constraint.
        candidates: Parameters that break none.
    """

    def __init__(
        self, seed: int, keeps: Callable[[Mapping[str, Any]], bool], candidates: Sequence[Mapping[str, Any]]
    ) -> None:
        super().__init__(seed=seed, n_startup_trials=0)
        self._keeps = keeps
        self._candidates = candidates

    def _optimize_acqf(self, acqf: Any, best_params: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """The normalized parameters with the largest acquisition function; meant by Optuna to be overridden."""
        best: NDArray[np.float64] = super()._optimize_acqf(acqf, best_params)
        space = acqf.search_space
        if not self._keeps(space.get_unnormalized_param(best)):
            points = space.get_normalized_params(self._candidates, self._candidates)
            best = points[np.argmax(acqf.eval_acqf_no_grad(points))]
        return best
