"""Ray Tune's ASHA with OptunaSearch, asked over a pipe; see `benchmarks/search.py`. Needs ray[tune] and optuna only."""

from types import SimpleNamespace
from typing import Any

from answering import answer
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search.optuna import OptunaSearch

OBJECTIVES = ["quality", "speed"]


def domain(parameter: dict[str, Any]) -> Any:
    """A parameter as Ray Tune writes it."""
    if "choice" in parameter:
        return tune.choice(parameter["choice"])
    low, high = parameter["range"]
    return (tune.loguniform if parameter["log"] else tune.uniform)(low, high)


class Peer:
    """A search with Optuna's TPE for both objectives, whose trials ASHA stops by their quality."""

    def __init__(self, space: dict[str, Any], seed: int, rounds: int, first: int, factor: int) -> None:
        domains = {name: domain(parameter) for name, parameter in space.items()}
        self.search = OptunaSearch(domains, metric=OBJECTIVES, mode=["max", "max"], seed=seed)
        self.scheduler = AsyncHyperBandScheduler(
            "round", metric="quality", mode="max", max_t=rounds, grace_period=first, reduction_factor=factor
        )

    def ask(self, number: int) -> dict[str, Any]:
        """A configuration; its trial begins."""
        self.scheduler.on_trial_add(None, SimpleNamespace(trial_id=str(number)))
        return dict(self.search.suggest(str(number)))

    def report(self, number: int, result: dict[str, float]) -> bool:
        """Whether the trial ends here, at a rung or after its last round."""
        done = self.scheduler.on_trial_result(None, SimpleNamespace(trial_id=str(number)), result) == "STOP"
        if done:
            self.search.on_trial_complete(str(number), result)
        return done


def main() -> None:
    answer(Peer)


if __name__ == "__main__":
    main()
