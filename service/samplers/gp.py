"""Optuna's Gaussian processes with expected hypervolume improvement; see `service.samplers.optuna_base`. Needs torch.

The first max(10, dimensions + 2) configurations come from the quasi-random sampler; so do all until as many have
finished and two of them have different values. The gain of a proposal is averaged over what the running trials may turn
out to be, so parallel proposals keep apart; whether a configuration diverges is modelled by a process of its own.

* A proposal costs about 1 second of one core with 64 finished trials, 1.7 with 256 and 4 with 512 (two objectives, four
  hyperparameters, 8 running), so the processes are fitted on at most `cap` trials: the best half (non-dominated sorting
  with crowding), a quarter for the newest diverged ones, and the newest of the others. Of the running ones the newest
  cap/4 count.
* A process takes values at face value, and one near-divergence at -1e6 would hide every difference among the good ones:
  of each objective, values further below the median than the best is above it are raised to that distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from driftline.results.pareto import select
from search_spaces.parameters import Space
from service.samplers.base import Hyperparameters
from service.samplers.optuna_base import Heard, Learner

if TYPE_CHECKING:
    import optuna

__all__ = ["CAP", "chosen", "raised"]

CAP = 64


class Sampler(Learner):
    """Proposals by Gaussian processes. See `service.samplers.base` for the other arguments.

    Args:
        cap: Finished trials on which they are fitted, at most; at least 16.
    """

    fixed = True
    tries = 1

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, cap: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._cap = CAP if cap is None else cap

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)

    def _ready(self, number: int) -> bool:
        told = {values for _, values in self._finished.values() if values is not None}
        return super()._ready(number) and len(told) > 1

    def _running(self, number: int) -> dict[int, Hyperparameters]:
        running = super()._running(number)
        return {other: running[other] for other in sorted(running)[-(self._cap // 4) :]}

    def _told(self) -> Heard:
        kept = chosen(self._finished, self._cap)
        return raised({number: self._finished[number] for number in kept})


def chosen(heard: Heard, cap: int) -> list[int]:
    """Numbers of at most `cap` finished trials: the best half, a quarter diverged, and the newest; see the module.

    Args:
        heard: All finished trials.
        cap: How many at most.

    Returns:
        Their numbers, ascending; they do not depend on the order of arrival.

    Examples:
        >>> chosen({0: ({}, (9.0,)), 1: ({}, None), 2: ({}, (1.0,)), 3: ({}, (8.0,)), 4: ({}, (2.0,))}, 4)
        [0, 1, 3, 4]
    """
    numbers = sorted(heard)
    if len(numbers) <= cap:
        return numbers
    told = [(number, values) for number in numbers if (values := heard[number][1]) is not None]
    kept = {told[index][0] for index in select([values for _, values in told], cap // 2)}
    kept.update([number for number in numbers if heard[number][1] is None][-(cap // 4) :])
    rest = [number for number in numbers if number not in kept]
    return sorted([*kept, *rest[len(rest) - (cap - len(kept)) :]])


def raised(heard: Heard) -> Heard:
    """The trials with outliers among the bad values raised: at most as far below the median as the best is above.

    Args:
        heard: Finished trials.

    Examples:
        >>> raised({0: ({}, (-1e6,)), 1: ({}, (1.0,)), 2: ({}, (3.0,))})
        {0: ({}, (-1.0,)), 1: ({}, (1.0,)), 2: ({}, (3.0,))}
    """
    told = [values for _, values in heard.values() if values is not None]
    floors = []
    for column in zip(*told, strict=True):
        room = max(column) - median(column)
        floors.append(median(column) - room if room > 0 else min(column))
    return {
        number: (hyperparameters, values and tuple(max(pair) for pair in zip(values, floors, strict=True)))
        for number, (hyperparameters, values) in heard.items()
    }
