"""Optuna's tree-structured Parzen estimator for one or two objectives; see `service.samplers.learner`.

The first `startup` settings come from the quasi-random sampler; so do all until as many have finished. Running trials
count as bad ones until they finish (constant liar): parallel proposals keep apart. A range with extra points is
modelled from the trials in it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.parameters import Space
from service.samplers.learner import Learner

if TYPE_CHECKING:
    import optuna


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
        import optuna

        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)
