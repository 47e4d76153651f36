"""The plan on which `policy` bases its decisions, and the actions that it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from driftline.study.budget import Budget
from driftline.study.pack_families import Families
from driftline.study.stages import Sizes, stage_of
from driftline.wire.records import StudyPlan
from service.driver.search.rules import RULES, Halving, Rule
from service.driver.search.study_plan import data_seed, proposed_at_once
from service.driver.search.study_rows import Row


@dataclass(frozen=True)
class SearchPlan:
    """What a study asks for.

    Attributes:
        labels: Labels of its entries, in order.
        budget: Trials, seeds and searches of each label.
        seed: Seed of the study.
        generation: Configurations that a label's samplers are asked for at once; 0 waits for no results.
        stages: Label -> its generations where it is tuned in stages; see `StudyPlan`.
        families: Groups of labels whose trials may share packs; without any, each label has its own packs.
        asked: Configurations that samplers are asked for at once without generations; 0 is a pack of each search.
        width: Most search trials in a pack.
        confirmation_width: Most confirmation trials in a pack.
        seeds_together: Whether confirmation trials of several seeds share a pack; the study's first pack must have said
            that the engine can join them.
        rule: Decides which trials continue beyond a rung.
        rungs: Label -> its rungs, if not the budget's; only their number counts if trials have rungs of their own.
    """

    labels: tuple[str, ...]
    budget: Budget
    seed: int = 0
    generation: int = 0
    width: int = 1
    confirmation_width: int = 1
    rule: Rule = field(default_factory=Halving)
    rungs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    asked: int = 0
    families: Families = ()
    stages: Mapping[str, Sizes] = field(default_factory=dict)
    seeds_together: bool = False

    @classmethod
    def of(
        cls,
        labels: tuple[str, ...],
        budget: Budget,
        plan: StudyPlan,
        seed: int = 0,
        rungs: Mapping[str, tuple[int, ...]] | None = None,
        families: Families = (),
    ) -> SearchPlan:
        """The search plan of a study."""
        rule, at_once = RULES[budget.rung_rule](), proposed_at_once(budget, plan)
        return cls(
            labels,
            budget,
            seed,
            plan.generation,
            plan.width,
            plan.confirmation_width,
            rule,
            rungs or {},
            at_once,
            families,
            plan.stages,
            plan.seeds_together and bool((plan.engine or {}).get("joins_seeds")),
        )

    @cached_property
    def family_of(self) -> Mapping[str, tuple[str, ...]]:
        """Label -> the labels with which its trials may share packs, itself included."""
        alone = {label: (label,) for label in self.labels}
        return alone | {label: family for family in self.families for label in family}

    def rungs_of(self, label: str) -> tuple[int, ...]:
        """The rungs of a label, in the unit of the budget; the whole amount included."""
        return self.rungs.get(label, self.budget.rung_amounts)

    def rungs_of_trial(self, row: Row) -> tuple[int, ...]:
        """The rungs of a trial, as rounds; the last round included."""
        return row.rungs_or(self.rungs_of(row.label))

    @property
    def asked_at_once(self) -> int:
        """Configurations that a label's samplers are asked for at once."""
        return self.generation or self.asked or self.width * self.budget.searches

    def search_seed(self, configuration: int) -> int:
        """Seed of a search trial; confirmation counts on from it."""
        return data_seed(self.seed, self.budget.search_of(configuration))

    def generation_of(self, label: str, number: int) -> tuple[int, int]:
        """The generation of a search trial, counted from 0, and the first trial after it."""
        if label in self.stages:
            generation, _, end = stage_of(self.stages[label], number)
            return generation, end
        generation = number // self.asked_at_once
        return generation, (generation + 1) * self.asked_at_once

    def waits(self, label: str) -> bool:
        """Whether a label's samplers are asked only when trials of earlier generations have ended."""
        return self.generation > 0 or label in self.stages

    def learned_from(self, first: int, label: str = "") -> int:
        """How many of a label's trials its samplers learn from when asked for trial `first` and those after it.

        Examples:
            >>> plan = SearchPlan(labels=("fedavg",), budget=Budget(trials_per_method=64, rounds=100), generation=8)
            >>> [plan.learned_from(first) for first in (0, 8, 16, 24)]
            [0, 0, 8, 16]
        """
        if label in self.stages:
            return stage_of(self.stages[label], first)[1]
        if not self.generation:
            return first
        return max(0, first // self.generation - 1) * self.generation


@dataclass(frozen=True)
class Ask:
    """Ask the label's samplers for configurations of its next search trials: numbers `first` .. `first + count - 1`."""

    label: str
    first: int
    count: int


@dataclass(frozen=True)
class Repeat:
    """Create the label's confirmation trials: search trials again on fresh seeds, first choices first.

    Attributes:
        label: The label.
        repeats: Pairs of a configuration (the number of its search trial) and a fresh seed.
        first: Number of the first new confirmation trial; the others follow.
    """

    label: str
    repeats: tuple[tuple[int, int], ...]
    first: int = 0


@dataclass(frozen=True)
class LaunchPack:
    """Start a pack of these trials, in this order.

    Attributes:
        trials: Their ids, by number.
        resume: Whether they are all the trials of an earlier pack, so that its checkpoint fits.
        rung: Index of the rung until which the pack trains; None without rungs and in confirmation.
    """

    trials: tuple[str, ...]
    resume: bool = False
    rung: int | None = None


@dataclass(frozen=True)
class StopTrials:
    """End trials at the rung that they have reached: they are not promoted.

    Attributes:
        trials: Their ids.
    """

    trials: tuple[str, ...]


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do."""


Action = Ask | Repeat | LaunchPack | StopTrials | Finish
