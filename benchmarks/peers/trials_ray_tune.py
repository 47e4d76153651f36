"""Ray Tune with OptunaSearch, at random, two trials at a time; run by `benchmarks/peer_products.py`.

A trial is a function as in Ray Tune's first example, or, with the argument "reused", a class whose actors are reused.
Both report every round.
"""

import sys
from typing import Any

import optuna
import ray
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from trial_task import RATES, STEPS, TrialTask, given, write


def function(config: dict[str, Any], folder: str) -> None:
    for loss in TrialTask(folder).train(**config):
        tune.report({"test_loss": loss})


class Reused(tune.Trainable):
    """A trial whose step is a round."""

    def setup(self, config: dict[str, Any], folder: str) -> None:
        self.task = TrialTask(folder)
        self.reset_config(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.losses = self.task.train(**config)
        return True

    def step(self) -> dict[str, float]:
        return {"test_loss": next(self.losses)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: Ray Tune asks for one at a trial's end."""


def main() -> None:
    folder, out, trials = given()
    reused = "reused" in sys.argv
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    space = {name: tune.loguniform(*ends) for name, ends in RATES.items()}
    sampler = optuna.samplers.RandomSampler(seed=0)
    search = OptunaSearch({**space, "local_steps": tune.choice(STEPS)}, metric="test_loss", mode="min", sampler=sampler)
    rounds = len(TrialTask(folder).rows)
    results = tune.Tuner(
        tune.with_resources(tune.with_parameters(Reused if reused else function, folder=folder), {"cpu": 1}),
        tune_config=tune.TuneConfig(
            search_alg=search, num_samples=trials, max_concurrent_trials=2, reuse_actors=reused
        ),
        run_config=tune.RunConfig(storage_path=f"{out}.results", stop={"training_iteration": rounds}, verbose=0),
    ).fit()
    write(out, [{**result.config, "test_loss": result.metrics["test_loss"]} for result in results])


if __name__ == "__main__":
    main()
