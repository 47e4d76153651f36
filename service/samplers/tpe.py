"""Optuna's tree-structured Parzen estimator for one or two objectives; see `service.samplers.learner`.

The first `startup` settings come from the quasi-random sampler; so do all until as many have finished. Running trials
count as bad ones until they finish (constant liar): parallel proposals keep apart. A range with extra points is
modelled from the trials in it alone.

Categories, among them whether a range or one of its extra points is meant, are drawn from the density of the good
trials. Optuna would take the one with the best ratio of good to bad ones of 24 drawn, which is nearly always the same
one: once a category is ahead the others are hardly tried again, and a frontier has one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution

from search_spaces.parameters import Space
from service.samplers.learner import Learner


class Sampler(Learner):
    """Proposals by TPE. See `service.samplers.protocol` for the other arguments.

    Args:
        startup: Settings that are quasi-random before TPE begins; max(10, dimensions + 2) by default.
    """

    fixed = False
    tries = 10

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, startup: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._startup = self._startup if startup is None else startup

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return _DrawnCategories(seed)


class _DrawnCategories(optuna.samplers.TPESampler):
    """TPE that draws categories rather than to take the most promising one each time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed, n_startup_trials=0, constant_liar=True)
        self._draw = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True, n_ei_candidates=1)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of one of Optuna's parameters; see Optuna."""
        if isinstance(param_distribution, CategoricalDistribution):
            return self._draw.sample_independent(study, trial, param_name, param_distribution)
        return super().sample_independent(study, trial, param_name, param_distribution)
