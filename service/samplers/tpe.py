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
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from search_spaces.parameters import Space
from service.known_versions import known
from service.samplers.optuna_base import Learner
from service.samplers.optuna_history import SharedTrial, common_parameters
from service.samplers.optuna_parameters import IN_RANGE, is_switch

if TYPE_CHECKING:
    from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

__all__ = ["LATEST", "SHARE", "DrawnCategories", "SplitTrials"]

LATEST = 10
SHARE = 0.5
"""An extra point of a range is proposed only while less than this share of the latest trials is at one."""

_SearchSpace = dict[str, BaseDistribution]
_Columns = tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]


class Sampler(Learner):
    """Proposals by TPE. See `service.samplers.sampler` for the other arguments.

    Args:
        startup: Quasi-random configurations before TPE begins; max(10, dimensions + 2) by default.
    """

    fixed = False
    tries = 10

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, startup: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._startup = self._startup if startup is None else startup
        self._split = SplitTrials()

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return DrawnCategories(seed, split=self._split)


class SplitTrials:
    """The trials of a study, split into good and bad ones, and what TPE computes from these.

    Optuna splits all trials again for each hyperparameter of each proposal. What follows from the finished trials alone
    is kept here until another trial has finished. Running trials, which all count as bad, are added to it.
    """

    def __init__(self) -> None:
        self._common: _SearchSpace | None = None
        self._read: list[FrozenTrial] | None = None
        self._finished: list[FrozenTrial] = []
        self._running: list[FrozenTrial] = []
        self._good: list[FrozenTrial] = []
        self._bad: list[FrozenTrial] = []
        self._good_densities: dict[tuple[str, ...], _ParzenEstimator] = {}
        self._bad_values: dict[tuple[str, ...], _Columns] = {}

    def read(self, study: optuna.Study, new: FrozenTrial) -> None:
        """Splits the trials of a study that is about to propose trial `new`."""
        trials = study._get_trials(deepcopy=False, use_cache=True)  # the same list for all hyperparameters of `new`
        if trials is self._read:
            return
        self._read = trials
        self._running = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.number != new.number]
        finished = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        if finished == self._finished:
            return
        self._finished = finished
        from optuna.samplers._tpe.sampler import _split_trials, default_gamma, default_gamma_multiobjective

        gamma = default_gamma if len(study.directions) == 1 else default_gamma_multiobjective
        self._good, self._bad = _split_trials(study, finished, gamma(len(finished)))
        self._good_densities, self._bad_values = {}, {}
        self._common = None

    def common(self) -> _SearchSpace:
        """Optuna's parameters that all finished trials have."""
        if self._common is None:
            self._common = common_parameters(self._finished)
        return self._common

    def good_density(self, space: _SearchSpace, study: optuna.Study, tpe: _SplitOnce) -> _ParzenEstimator:
        """The density of the good trials over some of Optuna's parameters."""
        keys = tuple(space)
        if keys not in self._good_densities:
            self._good_densities[keys] = tpe._build_parzen_estimator(study, space, self._good, handle_below=True)
        return self._good_densities[keys]

    def bad_density(self, space: _SearchSpace, study: optuna.Study, tpe: _SplitOnce) -> _ParzenEstimator:
        """The density of all other trials; the latest weigh most, so they are in the order of their numbers."""
        keys = tuple(space)
        if keys not in self._bad_values:
            self._bad_values[keys] = _columns(self._bad, space, study, tpe)
        numbers, values = self._bad_values[keys]
        more, running = _columns(self._running, space, study, tpe)
        order = np.argsort(np.concatenate([numbers, more]), kind="stable")
        observations = {key: np.concatenate([values[key], running[key]])[order] for key in keys}
        return tpe._parzen_estimator_cls(observations, space, tpe._parzen_estimator_parameters)


class _SplitOnce(optuna.samplers.TPESampler):
    """Optuna's TPE with trials that are split once; its proposals equal Optuna's to the bit.

    This needs private parts of Optuna. With another version than the known one, Optuna splits the trials itself.

    Args:
        split: The split of the study's trials.
        seed: Seed of its random draws.
        candidates: How many values to draw, of which to take the one with the best ratio of good to bad density.
    """

    def __init__(self, split: SplitTrials, seed: int, candidates: int = 24) -> None:
        super().__init__(seed=seed, n_startup_trials=0, constant_liar=True, n_ei_candidates=candidates)
        self._split = split
        self.shortcut = known("optuna")

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> _SearchSpace:
        """The parameters that are proposed together; see Optuna."""
        if not self.shortcut:
            space: _SearchSpace = super().infer_relative_search_space(study, trial)
            return space
        if not self._is_multivariate(study):
            return {}
        self._split.read(study, trial)
        return self._split.common()

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value of one of Optuna's parameters; see Optuna."""
        if not self.shortcut:
            return super().sample_independent(study, trial, param_name, param_distribution)
        return self._sample(study, trial, {param_name: param_distribution})[param_name]

    def _sample(self, study: optuna.Study, trial: FrozenTrial, *search_space: Any) -> dict[str, Any]:
        if not self.shortcut:
            values: dict[str, Any] = super()._sample(study, trial, *search_space)
            return values
        return self._split_sample(study, trial, search_space[0])

    def _split_sample(self, study: optuna.Study, trial: FrozenTrial, search_space: _SearchSpace) -> dict[str, Any]:
        self._split.read(study, trial)
        good = self._split.good_density(search_space, study, self)
        drawn = good.sample(self._rng.rng, self._n_ei_candidates)
        ratios = np.zeros(1)
        if self._n_ei_candidates > 1:
            ratios = self._compute_acquisition_func(drawn, good, self._split.bad_density(search_space, study, self))
        best = self._compare(drawn, ratios)
        return {name: kind.to_external_repr(best[name]) for name, kind in search_space.items()}


class DrawnCategories(_SplitOnce):
    """TPE that draws categories instead of always taking the most promising one.

    Args:
        seed: Seed of its random draws.
        share: Share of the latest trials that may be at extra points; infinity sets no bound.
        split: The split of the study's trials; may be shared by the samplers of one study.
    """

    def __init__(self, seed: int, share: float = SHARE, split: SplitTrials | None = None) -> None:
        self._share = share
        base_seed, draw_seed = (int(word) for word in np.random.SeedSequence(seed).generate_state(2))
        split = SplitTrials() if split is None else split
        super().__init__(split, base_seed)
        self._draw = _SplitOnce(split, draw_seed, candidates=1)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
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
    numbered = (trial for trial in reversed(study.get_trials(deepcopy=False)) if "number" in trial.user_attrs)
    extra = [trial for trial in islice(numbered, LATEST) if trial.params.get(switch, IN_RANGE) != IN_RANGE]
    return len(extra) / LATEST


def _columns(trials: Sequence[FrozenTrial], space: _SearchSpace, study: optuna.Study, tpe: _SplitOnce) -> _Columns:
    """Numbers and values of the trials that have all of some of Optuna's parameters.

    Earlier tries at the same proposal have no number yet, and come last.
    """
    shared, tries = [], []
    for trial in trials:
        if isinstance(trial, SharedTrial):
            if space.keys() <= trial.internal.keys():
                shared.append(trial)
        elif space.keys() <= tpe._get_params(trial, study).keys():
            tries.append(trial)
    last = tpe._get_internal_repr(tries, space, study)
    values = {key: np.array([*(trial.internal[key] for trial in shared), *last[key]]) for key in space}
    return np.array([trial.user_attrs.get("number", np.inf) for trial in (*shared, *tries)]), values
