"""Times packs of a study in a process of its own: `python -m service.embedded.timing_process SECONDS BYTES SEED`.

The study arrives on stdin. The process prints the processor seconds in which it has loaded its modules and those in
which it has loaded the data, then a `PackSpeed` for each kind of pack that it has timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from driftline.study.pack_families import families
from driftline.study.spec import Study
from driftline.study.trial_document import structure, trial_document
from driftline.wire.records import Phase
from service.api.check_process import limit_memory
from service.driver.search.study_plan import decided
from service.samplers.allowed import first_allowed

if TYPE_CHECKING:
    from trainers import Pack, Plan  # with torch, which the parent does not need

LOADED, READY = "loaded", "ready"

_MOST_S = 2.0
"""Most processor seconds in which packs of one kind are timed."""

_PATIENCE = 2.0
"""Largest ratio of elapsed to processor time: other programs may use the cores."""

_CONFIGURATIONS = 3
"""Packs that are tried before a label is said to fail."""

_DRAWS = 8
_TRIES = 16


@dataclass(frozen=True)
class PackSpeed:
    """Processor seconds that were measured for the packs of a label in one phase.

    Attributes:
        label: The entry's label.
        phase: "search" or "confirmation": the packs of the two differ in width.
        width: Trials in the packs that were timed; 0 if none was.
        build_s: For building a pack.
        round_s: For a round of one trial, without evaluation.
        evaluation_s: For an evaluation of one trial.
        first_s: For choosing an oracle, before the first pack of all; 0 for others.
        slowdown: Ratio of elapsed to processor time.
        why: Why the speed is unknown.
        fails: Whether every configuration that was tried failed to train, not for lack of memory.
        joins_seeds: Whether the engine can join trials of several seeds.
    """

    label: str
    phase: Phase = "search"
    width: int = 0
    build_s: float = 0.0
    round_s: float = 0.0
    evaluation_s: float = 0.0
    first_s: float = 0.0
    slowdown: float = 1.0
    why: str = ""
    fails: bool = False
    joins_seeds: bool = False


def documents(study: Study, label: str, phase: Phase, seed: int) -> Iterator[dict[str, Any]]:
    """Trial documents of typical packs: configurations drawn at random from the label's space.

    Args:
        study: The study.
        label: The label.
        phase: Decides the number of trials.
        seed: Seed of the draws.
    """
    budget, entry = study.budget, study.entry(label)
    groups = families(study.to_json(), budget)
    plan = decided(budget, study.resources, study.leading_sampler, families=groups)
    together = next(len(family) for family in groups if label in family)
    width = min(plan.width, budget.trials_per_method * together)
    seeds = [study.seed]
    if phase == "confirmation":
        trials = budget.confirmation_trials if plan.seeds_together else budget.confirmed_per_search
        width = min(plan.confirmation_width, trials * together)
        seeds = [study.seed + 1 + number for number in range(width)] if plan.seeds_together else seeds
    if budget.branches > 1 and entry.branching:
        width = 1  # its packs compute their trials one by one, and how many rounds are shared is not known
    space, generator = entry.parameters(), np.random.default_rng(seed)
    draws = ({name: parameter.sample(generator) for name, parameter in space.items()} for _ in count())
    while True:
        first = first_allowed(draws, entry.constraints)
        others = (first_allowed(draws, entry.constraints) for _ in range(_TRIES * (width - 1)))
        alike = (other for other in others if structure(study, label, other) == structure(study, label, first))
        members = [first] * width if len(seeds) > 1 else [first, *islice(alike, width - 1)]
        yield trial_document(study, label, members, seeds, phase=phase)


def timed(study: Study, training_s: float, most_bytes: int, seed: int) -> Iterator[PackSpeed]:
    """Times the packs of each label, those of the search first.

    Args:
        study: The study.
        training_s: About how many processor seconds this may take.
        most_bytes: Memory that it may take.
        seed: Seed of the draws.
    """
    phases: list[Phase] = ["search", "confirmation"] if study.budget.confirmation_trials else ["search"]
    kinds = [PackKind(study, label, phase, seed) for phase in phases for label in study.labels]
    share = min(_MOST_S, 0.8 * training_s / len(kinds))
    engine: Plan | None = None
    for kind in kinds:
        for _ in range(_CONFIGURATIONS):
            try:
                speed, engine = kind.timed(engine, share)
            except Exception as error:
                why = f"training fails with {type(error).__name__}: {' '.join(str(error).split())}"
                if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
                    why = f"training needs more than {most_bytes / 2**30:.1f} GiB of memory"  # RuntimeError: torch's
                    speed = PackSpeed(kind.label, kind.phase, why=why)
                    break
                speed = PackSpeed(kind.label, kind.phase, why=why, fails=True)
            else:
                break
        yield speed


class PackKind:
    """Packs of one label in one phase, each with configurations of its own.

    Configurations differ in their numbers of local steps, so several packs are timed, each for as many rounds.
    """

    def __init__(self, study: Study, label: str, phase: Phase, seed: int) -> None:
        self.label, self.phase = label, phase
        self._documents = documents(study, label, phase, seed)
        branching = study.budget.branches > 1 and study.entry(label).branching
        self._separate = branching or (phase == "search" and study.budget.rungs is not None)

    def timed(self, engine: Plan | None, seconds: float) -> tuple[PackSpeed, Plan]:
        """Times packs for about this many processor seconds, at least one round.

        Args:
            engine: The plan of the first pack of all; None if this is it.
            seconds: About how many processor seconds this may take.

        Returns:
            The speed, and the plan of the first pack of all.
        """
        began, spent = time.perf_counter(), time.process_time()
        first_s = 0.0
        if engine is None:
            engine = self.pack(None).plan
            first_s = time.process_time() - spent
        packs = [_TimedPack.of(lambda: self.pack(engine), 1)]
        if time.perf_counter() - began < seconds:  # the first calls take longer than others
            rounds = max(int(seconds / _DRAWS / packs[0].training_s), 1)
            packs.clear()
            while not packs or (
                time.process_time() - spent < seconds and time.perf_counter() - began < _PATIENCE * seconds
            ):
                packs.append(_TimedPack.of(lambda: self.pack(engine), rounds))
        trained, width = sum(pack.rounds for pack in packs), packs[0].trials
        speed = PackSpeed(
            self.label,
            self.phase,
            width,
            build_s=sum(pack.build_s for pack in packs) / len(packs),
            round_s=sum(pack.training_s for pack in packs) / trained / width,
            evaluation_s=sum(pack.evaluation_s for pack in packs) / len(packs) / width,
            first_s=first_s,
            slowdown=(time.perf_counter() - began) / (time.process_time() - spent),
            joins_seeds=packs[0].joins_seeds,
        )
        return speed, engine

    def pack(self, engine: Plan | None) -> Pack:
        """The next pack. By the plan of the first one, as in a study, it evaluates at its start and end alone."""
        from trainers import Pack, parse

        spec, plan = parse(next(self._documents)), engine
        if plan is not None:
            plan = replace(plan, width=spec.members, separate=self._separate, eval_every=spec.rounds)
        return Pack.from_spec(spec, plan=plan, device="cpu")


@dataclass(frozen=True)
class _TimedPack:
    """Processor seconds that the parts of a pack took."""

    trials: int
    rounds: int
    joins_seeds: bool
    build_s: float
    evaluation_s: float
    training_s: float

    @classmethod
    def of(cls, built: Callable[[], Pack], rounds: int) -> _TimedPack:
        times = [time.process_time()]
        pack = built()
        times.append(time.process_time())
        pack.advance(0)  # evaluates the initial model
        times.append(time.process_time())
        pack.advance(max(min(rounds, pack.rounds - 1), 1))
        times.append(time.process_time())
        joins = "joins_seeds" in pack.work
        return cls(pack.members, max(pack.round, 1), joins, *(later - before for before, later in pairwise(times)))


def main() -> None:
    """Times the packs of the study on stdin, and prints what it measures."""
    import torch

    import trainers

    _ = trainers.Pack  # loads the engine
    loading_s = time.process_time()
    print(LOADED, loading_s, flush=True)
    training_s, most_bytes, seed = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    study = Study.from_json(json.load(sys.stdin))
    torch.set_num_threads(max(1, int(study.resources.cpus)))  # as a worker does
    trainers.parse(next(documents(study, study.labels[0], "search", seed)))  # loads the data
    limit = min(most_bytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
    limit_memory(limit)
    print(READY, time.process_time() - loading_s, flush=True)
    for speed in timed(study, training_s, limit, seed):
        print(json.dumps(asdict(speed)), flush=True)


if __name__ == "__main__":
    main()
