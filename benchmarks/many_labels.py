"""What a trial costs in a study of many labels that share packs, and with packs of their own.

    OMP_NUM_THREADS=1 python -m benchmarks.many_labels [--labels 8] [--trials 16] [--rounds 50] [--repeats 3]

The labels are FedAvg on digits with local steps of their own, 10 clients a round; configurations are random, asked for
and packed as TPE's would be, then 8 of each label are repeated on 3 seeds. Every pack is built and trained in this
process; times are its processor milliseconds a trial, without driver, API and store. Both kinds in turns."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from benchmarks.engine import machine
from driftline.study.pack_families import Families, families
from driftline.study.spec import Study
from driftline.study.trial_document import structure, trial_document
from service.driver.search.actions import Ask, Finish, LaunchPack, Repeat, SearchPlan
from service.driver.search.policy import decide
from service.driver.search.study_plan import decided
from service.driver.search.study_rows import Row, TrialRows
from trainers import Pack, Plan, parse

LOCAL_STEPS = (1, 2, 3, 5, 8, 10, 15, 20)


def study(labels: int, trials: int, rounds: int) -> Study:
    """The study."""
    rates = {"client_lr": {"float": [1e-3, 1.0], "log": True}, "server_lr": {"float": [0.1, 10.0], "log": True}}
    entries = [
        {
            "label": f"label_{index}",
            "name": "fedavg",
            "space": rates | {"local_steps": LOCAL_STEPS[index % len(LOCAL_STEPS)]},
        }
        for index in range(labels)
    ]
    return Study.from_json(
        {
            "name": "many_labels",
            "task": {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
            "clients_per_round": 10,
            "batch_size": 20,
            "eval_every": 1,
            "methods": entries,
            "objective": {"quality": "test_loss", "cost": "rounds"},
            "budget": {"trials_per_method": trials, "rounds": rounds, "seeds": 3, "confirm": 8},
        }
    )


class Run:
    """A study whose packs train one after the other.

    Args:
        study: The study.
        together: Labels that share packs.

    Attributes:
        packs: Number of packs so far.
        seconds: Their processor time.
    """

    def __init__(self, study: Study, together: Families) -> None:
        self.study = study
        width = decided(study.budget, study.resources, study.leading_sampler, families=together)
        self.plan = SearchPlan.of(study.labels, study.budget, width, study.seed, families=together)
        self.rows = TrialRows()
        self.packs, self.seconds = 0, 0.0
        self._engine: Plan | None = None

    def to_its_end(self) -> None:
        """Trains all trials."""
        while True:
            for action in decide(self.plan, self.rows, {}, 1, lambda _, __, count: range(count)):
                match action:
                    case Ask(label, first, count):
                        self._ask(label, range(first, first + count))
                    case Repeat(label, repeats, first):
                        for number, (configuration, seed) in enumerate(repeats, first):
                            row = self.rows[f"{label}.search.{configuration}"]
                            self._put(replace(row, phase="confirmation", number=number, seed=seed))
                    case LaunchPack(trials):
                        self._train(trials)
                    case Finish():
                        return

    def _ask(self, label: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            generator = np.random.default_rng([self.study.labels.index(label), number])
            space = self.study.entry(label).parameters()
            values = {name: parameter.sample(generator) for name, parameter in space.items()}
            kind = structure(self.study, label, values)
            self._put(Row("", label, "search", number, 0, kind, configuration=number, hyperparameters=values))

    def _put(self, row: Row) -> None:
        self.rows.put(replace(row, id=f"{row.label}.{row.phase}.{row.number}", state="WAITING"))

    def _train(self, trials: Sequence[str]) -> None:
        rows = [self.rows[trial] for trial in trials]
        values, seeds = [row.hyperparameters for row in rows], [row.seed for row in rows]
        start = time.process_time()
        spec = parse(trial_document(self.study, rows[0].label, values, seeds, phase=rows[0].phase))
        engine = None if self._engine is None else replace(self._engine, width=len(trials))
        pack = Pack.from_spec(spec, device="cpu", plan=engine)
        pack.advance()
        self.seconds += time.process_time() - start
        self.packs, self._engine = self.packs + 1, pack.plan
        for row in rows:
            self.rows.put(replace(row, state="COMPLETE"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--labels", type=int, default=8)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    one = study(options.labels, options.trials, options.rounds)
    kinds: dict[str, Families] = {"shared": families(one.to_json(), one.budget), "of each label": ()}
    runs: dict[str, list[Run]] = {name: [] for name in kinds}
    for _ in range(options.repeats):
        for name, together in kinds.items():
            run = Run(one, together)
            run.to_its_end()
            runs[name].append(run)
    print(f"{machine()}\n\n| packs | trials | number of packs | CPU-ms a trial |\n|---|---|---|---|")
    for name, own in runs.items():
        spent = [1e3 * run.seconds / len(run.rows) for run in own]
        text = f"{statistics.median(spent):.1f} ({min(spent):.1f} to {max(spent):.1f})"
        print(f"| {name} | {len(own[0].rows)} | {own[0].packs} | {text} |")


if __name__ == "__main__":
    main()
