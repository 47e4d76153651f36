"""Syne Tune's MOASHA, asked over a pipe; see `benchmarks/search.py`. Needs syne-tune only."""

import random
from datetime import datetime
from typing import Any

import numpy as np
from answering import answer
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, loguniform, uniform
from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

OBJECTIVES = ["quality", "speed"]


def domain(parameter: dict[str, Any]) -> Any:
    """A parameter as Syne Tune writes it."""
    if "choice" in parameter:
        return choice(parameter["choice"])
    low, high = parameter["range"]
    return (loguniform if parameter["log"] else uniform)(low, high)


class Peer:
    """A random search whose trials are stopped by non-dominated sorting of both objectives."""

    def __init__(self, space: dict[str, Any], seed: int, rounds: int, first: int, factor: int) -> None:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (MOASHA samples from it)
        domains = {name: domain(parameter) for name, parameter in space.items()}
        self.scheduler = MOASHA(
            domains, OBJECTIVES, do_minimize=False, time_attr="round", max_t=rounds, grace_period=first,
            reduction_factor=factor, random_seed=seed,
        )  # fmt: skip
        self.trials: dict[int, Trial] = {}

    def ask(self, number: int) -> dict[str, Any]:
        """A configuration; its trial begins."""
        config = dict(self.scheduler.suggest().config)
        self.trials[number] = Trial(number, config, datetime.now())
        self.scheduler.on_trial_add(self.trials[number])
        return config

    def report(self, number: int, result: dict[str, float]) -> bool:
        """Whether the trial ends here, at a rung or after its last round."""
        return bool(self.scheduler.on_trial_result(self.trials[number], result) == "STOP")


def main() -> None:
    answer(Peer)


if __name__ == "__main__":
    main()
