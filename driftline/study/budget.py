"""The budget of a study: trials, seeds and searches of every entry, and how far each trial trains.

A trial has `rounds`, or a budget in what it spends: examples, tokens or client gradients. It then ends with the last
round that fits, which depends on its own configuration; see `driftline.study.trial_rounds`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator
from pydantic import Field as Key

from driftline.errors import InvalidSpec
from driftline.study.rung_rounds import RungsByRule, arriving_at, read_rungs, rungs_of, scaled
from driftline.study.trial_settings import LARGEST, MOST_ROUNDS
from driftline.study.validation import Section, Whole

MOST_TRIALS = 1_000_000
MOST_SEEDS = 10_000
"""Limits far above any real study, which every database and sampler can represent."""

LEAST_PAIRS = 6
"""Seeds, or searches, that a verdict of `compare` needs."""

UNITS = ("rounds", "examples", "tokens", "client_gradients")
"""Units of what a trial may spend, each the name of its key; exactly one of them is given."""


def unit_text(unit: str) -> str:
    """A unit in words: "client gradients"."""
    return unit.replace("_", " ")


def spend_text(unit: str, amount: int) -> str:
    """What a trial may spend, in words: "200 rounds", "1,000,000 examples"."""
    return f"{amount} rounds" if unit == "rounds" else f"{amount:,} {unit_text(unit)}"


class Budget(Section):
    """The budget of each entry, the same for all.

    Attributes:
        trials_per_method: Configurations searched for each entry.
        rounds: Server updates of a trial, unless its entry has its own.
        examples, tokens, client_gradients: What a trial may spend, in place of `rounds`: it ends with the last round
            that fits. One of the four is given.
        rungs: Rounds, or amounts in the budget's own unit, at which search trials are compared; about a third of them
            continue. "auto" takes a ninth and a third of the whole. None trains every trial to the end.
            ``{"at": [60], "rule": "forecast"}`` chooses another rule. See `driftline.study.rung_rounds`.
        seeds: Fresh seeds on which chosen configurations are confirmed; with 0, results come from the search. 6 by
            default, the fewest that allow a verdict; 0 where nothing in the study is random.
        confirm: How many configurations of each entry are run again, on fresh seeds.
        searches: Independent searches of each entry, which share its configurations; each has random seeds of its own.
        branches: With how many settings of its schedule a configuration is tried, in entries that search a schedule.
            These trials are trained together until their rates part.
        asking: "generations" asks samplers for an eighth of the configurations at once and tells them each result two
            such generations later, so that the trials do not depend on the number of workers; "asynchronous" tells
            them every result at once, and compares a trial at a rung with those that have arrived so far.
    """

    trials_per_method: Whole = Key(ge=1, le=MOST_TRIALS)
    rounds: Annotated[Whole, Key(ge=1, le=MOST_ROUNDS)] | None = None
    examples: Annotated[Whole, Key(ge=1, le=LARGEST)] | None = None
    tokens: Annotated[Whole, Key(ge=1, le=LARGEST)] | None = None
    client_gradients: Annotated[Whole, Key(ge=1, le=LARGEST)] | None = None
    rungs: Annotated[Literal["auto"] | list[int] | RungsByRule | None, BeforeValidator(read_rungs)] = None
    seeds: Whole = Key(default=LEAST_PAIRS, ge=0, le=MOST_SEEDS)
    confirm: Whole = Key(default=8, ge=1, le=MOST_TRIALS)
    searches: Whole = Key(default=1, ge=1, le=MOST_SEEDS)
    branches: Whole = Key(default=1, ge=1, le=MOST_TRIALS)
    asking: Literal["generations", "asynchronous"] = "generations"

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        units = [name for name in UNITS if getattr(self, name) is not None]
        others = f"{', '.join(UNITS[1:-1])} or {UNITS[-1]} in its place"
        if not units:
            raise InvalidSpec("rounds", f"must be given, or {others}")
        if len(units) > 1:
            raise InvalidSpec(units[1], f"must be left out beside {units[0]}: a trial has a budget in one unit")
        return self

    @model_validator(mode="after")
    def _rungs_increase(self) -> Self:
        if self.rungs_at is not None:
            rungs_of(self.rungs_at, self.amount, self.unit)
        return self

    @model_validator(mode="after")
    def _equal_searches(self) -> Self:
        if self.trials_per_method % self.searches:
            raise InvalidSpec(
                "trials_per_method",
                f"must be a multiple of searches, so that all searches are equal, got "
                f"trials_per_method={self.trials_per_method} and searches={self.searches}",
            )
        return self

    @model_validator(mode="after")
    def _branches_within_a_search(self) -> Self:
        if self.branches > self.trials_per_search:
            most = f"{self.trials_per_search}, the configurations of a search"
            raise InvalidSpec("branches", f"must be at most {most}, got branches={self.branches}")
        return self

    @property
    def unit(self) -> str:
        """The unit of what a trial may spend, one of `UNITS`."""
        return next(name for name in UNITS if getattr(self, name) is not None)

    @property
    def amount(self) -> int:
        """What a trial may spend, in `unit`."""
        return int(getattr(self, self.unit))

    @property
    def trial_text(self) -> str:
        """What a trial may spend, in words.

        Examples:
            >>> Budget(trials_per_method=8, rounds=2000).trial_text, Budget(trials_per_method=8, tokens=1e6).trial_text
            ('2000 rounds', '1,000,000 tokens')
        """
        return spend_text(self.unit, self.amount)

    @property
    def last_round(self) -> int:
        """Rounds of a trial, for a budget of rounds."""
        if self.rounds is None:
            raise ValueError(f"a budget of {self.unit} has no number of rounds: that depends on the configuration")
        return self.rounds

    def of_rounds(self, rounds: int | None) -> Budget:
        """This budget for trials of another number of rounds, with rungs at the same fractions; None changes nothing.

        Raises:
            InvalidSpec: The rounds are too few for these rungs.
        """
        if rounds is None or rounds == self.rounds:
            return self
        rungs, at = self.rungs, self.rungs_at
        if at is not None and not (at == "auto" and self.rounds is not None):
            at = scaled(self.rung_amounts, self.amount, rounds, self.unit)
        rungs = rungs.model_copy(update={"at": at}) if isinstance(rungs, RungsByRule) else at
        return self.model_copy(update={**dict.fromkeys(UNITS), "rounds": rounds, "rungs": rungs})

    @property
    def rungs_at(self) -> Literal["auto"] | list[int] | None:
        """The rungs as they are given, whatever their rule."""
        return self.rungs.at if isinstance(self.rungs, RungsByRule) else self.rungs

    @property
    def rung_rule(self) -> str:
        """Name of the rule that decides which trials continue."""
        return self.rungs.rule if isinstance(self.rungs, RungsByRule) else "halving"

    @property
    def rung_amounts(self) -> tuple[int, ...]:
        """The rungs in the budget's unit, the whole amount included; that alone without rungs."""
        return (self.amount,) if self.rungs_at is None else rungs_of(self.rungs_at, self.amount, self.unit)

    @property
    def rung_rounds(self) -> tuple[int, ...]:
        """The rungs as rounds, the last round included, for a budget of rounds."""
        return (self.last_round,) if self.rungs_at is None else rungs_of(self.rungs_at, self.last_round)

    @property
    def search_rounds(self) -> int:
        """Rounds of all search trials of an entry; with rungs about, because each promotes a third of the trials."""
        rungs = self.rung_rounds
        arriving = arriving_at(len(rungs), self.trials_per_method)
        return sum(trials * (high - low) for trials, low, high in zip(arriving, (0, *rungs), rungs, strict=False))

    @property
    def trials_per_search(self) -> int:
        """Configurations of each entry that one search tries."""
        return self.trials_per_method // self.searches

    @property
    def confirmed_per_search(self) -> int:
        """Configurations of each search that are run again: the same for all, so that ledgers stay equal."""
        return min(max(self.confirm // self.searches, 1), self.trials_per_search) if self.seeds else 0

    @property
    def confirmed(self) -> int:
        """Configurations of each entry that are run again."""
        return self.confirmed_per_search * self.searches

    def search_of(self, configuration: int) -> int:
        """Number of the search that proposes this configuration: searches take turns."""
        return configuration % self.searches

    def trunk_of(self, configuration: int) -> int:
        """Number of the first configuration that shares everything but the schedule with this one."""
        index = configuration // self.searches
        return (index - index % self.branches) * self.searches + self.search_of(configuration)

    @property
    def confirmation_trials(self) -> int:
        """Trials of each entry that run a configuration again on a fresh seed."""
        return self.confirmed * self.seeds

    @property
    def trials(self) -> int:
        """Trials of each entry, those on fresh seeds included."""
        return self.trials_per_method + self.confirmation_trials

    @property
    def rounds_of_trials(self) -> int:
        """Rounds of all trials of an entry, if none diverges."""
        return self.search_rounds + self.confirmation_trials * self.last_round
