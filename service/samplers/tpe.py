"""Optuna's tree-structured Parzen estimator for one or two objectives; see `service.samplers.optuna_base`.

The first `startup` configurations are quasi-random; so are all further ones until `startup` trials have finished.
Running trials count as bad until they finish (constant liar), so that parallel proposals differ. A range with extra
points is modelled only from the trials inside the range.

Categories, including the switch between a range and its extra points, are drawn from the density of the good trials.
Optuna would draw 24 and take the one with the best ratio of good to bad density, which is nearly always the same: once
a category is ahead, the others are hardly tried again, and the frontier is explored at one end only. For the same
reason, extra points get at most half of the latest trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution

from search_spaces.parameters import Space
from service.samplers.optuna_base import Learner
from service.samplers.optuna_parameters import IN_RANGE, is_switch

__all__ = ["LATEST", "SHARE", "DrawnCategories"]

LATEST = 10
SHARE = 0.5
"""An extra point of a range is proposed only while less than this share of the latest trials is at one."""


class Sampler(Learner):
    """Proposals by TPE. See `service.samplers.base` for the other arguments.

    Args:
        startup: Quasi-random configurations before TPE begins; max(10, dimensions + 2) by default.
    """

    fixed = False
    tries = 10

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, startup: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._startup = self._startup if startup is None else startup

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return DrawnCategories(seed)


class DrawnCategories(optuna.samplers.TPESampler):
    """TPE that draws categories instead of always taking the most promising one.

    Args:
        seed: Seed of its random draws.
        share: Share of the latest trials that may be at extra points; infinity sets no bound.
    """

    def __init__(self, seed: int, share: float = SHARE) -> None:
        self._share = share
        own, other = (int(word) for word in np.random.SeedSequence(seed).generate_state(2))
        super().__init__(seed=own, n_startup_trials=0, constant_liar=True)
        self._draw = optuna.samplers.TPESampler(seed=other, n_startup_trials=0, constant_liar=True, n_ei_candidates=1)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of one of Optuna's parameters; see Optuna."""
        if isinstance(param_distribution, CategoricalDistribution):
            drawn = self._draw.sample_independent(study, trial, param_name, param_distribution)
            return IN_RANGE if is_switch(param_name) and _share_at_extra(study, param_name) >= self._share else drawn
        return super().sample_independent(study, trial, param_name, param_distribution)


def _share_at_extra(study: optuna.Study, switch: str) -> float:
    """Share of the latest trials that are at an extra point of the switch's range."""
    numbered = [trial for trial in study.get_trials(deepcopy=False) if "number" in trial.user_attrs]
    latest = sorted(numbered, key=lambda trial: int(trial.user_attrs["number"]))[-LATEST:]
    extra = [trial for trial in latest if trial.params.get(switch, IN_RANGE) != IN_RANGE]
    return len(extra) / LATEST
