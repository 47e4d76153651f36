"""Optuna alone: random search in two processes that share a journal; run by `benchmarks/peer_products.py`."""

from multiprocessing import get_context

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from trial_task import RATES, STEPS, TrialTask, given, write


def search(folder: str, journal: str, trials: int, seed: int) -> None:
    """Runs a share of the trials."""
    task = TrialTask(folder)

    def objective(trial: optuna.Trial) -> float:
        rates = {name: trial.suggest_float(name, *ends, log=True) for name, ends in RATES.items()}
        *_, loss = task.train(**rates, local_steps=trial.suggest_categorical("local_steps", STEPS))
        return loss

    study = optuna.load_study(study_name="study", storage=JournalStorage(JournalFileBackend(journal)))
    study.sampler = optuna.samplers.RandomSampler(seed=seed)
    study.optimize(objective, n_trials=trials)


def main() -> None:
    folder, out, trials = given()
    journal = f"{out}.journal"
    study = optuna.create_study(study_name="study", storage=JournalStorage(JournalFileBackend(journal)))
    shares = [(folder, journal, trials // 2, 0), (folder, journal, trials - trials // 2, 1)]
    with get_context("spawn").Pool(2) as pool:
        pool.starmap(search, shares)
    write(out, [{**trial.params, "test_loss": trial.value} for trial in study.trials])


if __name__ == "__main__":
    main()
