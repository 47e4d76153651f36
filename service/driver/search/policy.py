"""What a driver does next: pure rules over the rows of a study.

Two phases. In the *search* every label gets `trials_per_method` configurations. Its searches take turns: each proposes
every `searches`-th configuration and has a seed of its own. When all are finished, some configurations of each search
are run again on `seeds` fresh seeds: *confirmation*. Trials of one label, phase, seed and structure run together in a
pack; a pack whose worker died, or that was stopped, is formed again from exactly the same trials, so that its
checkpoint fits.

A label's samplers are asked for one generation of configurations after the other. Generation g waits until generation
g-2 is complete, and learns from generations up to g-2 only, so that neither the number of workers nor the order in
which trials end changes a proposal.

A study may be extended with more configurations or seeds, even after it has finished. Its search continues, then the
configurations that are chosen now are repeated in addition to those that were repeated before, all of them on every
seed. If one search chooses more new configurations than another, the other repeats its next ones, so that all searches
of all labels repeat the same number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from driftline.study.spec import Budget
from driftline.wire.records import TRIAL_FINISHED, Phase, StudyPlan, TrialState
from service.driver.search.study_plan import data_seed

Choose = Callable[[str, int, int], Sequence[int]]
"""Gives the configurations to confirm of a finished search, first choices first: (label, search, how many)."""

ATTEMPTS = 3
"""A trial fails when its worker has died this many times in a row without a newer checkpoint in between."""


@dataclass(frozen=True)
class SearchPlan:
    """What a study asks for.

    Attributes:
        labels: Labels of its entries, in order.
        budget: Trials, seeds and searches of each label.
        seed: Seed of the study.
        generation: Configurations that a label's samplers are asked for at once; 0 asks for a pack of each search at
            once, and waits for no results.
        width: Most search trials in a pack.
        confirmation_width: Most confirmation trials in a pack.
    """

    labels: tuple[str, ...]
    budget: Budget
    seed: int = 0
    generation: int = 0
    width: int = 1
    confirmation_width: int = 1

    @classmethod
    def of(cls, labels: tuple[str, ...], budget: Budget, plan: StudyPlan, seed: int = 0) -> SearchPlan:
        """What a study with these labels, this budget and this plan asks for."""
        return cls(labels, budget, seed, plan.generation, plan.width, plan.confirmation_width)

    @property
    def asked_at_once(self) -> int:
        """Configurations that a label's samplers are asked for at once."""
        return self.generation or self.width * self.budget.searches

    def search_seed(self, configuration: int) -> int:
        """Seed of a search trial; confirmation counts on from it."""
        return data_seed(self.seed, self.budget.search_of(configuration))

    def learned_from(self, first: int) -> int:
        """How many of a label's trials its samplers learn from when asked for trial `first` and those after it.

        Examples:
            >>> plan = SearchPlan(labels=("fedavg",), budget=Budget(trials_per_method=64, rounds=100), generation=8)
            >>> [plan.learned_from(first) for first in (0, 8, 16, 24)]
            [0, 0, 8, 16]
        """
        if not self.generation:
            return first
        return max(0, first // self.generation - 1) * self.generation


@dataclass(frozen=True)
class Row:
    """A trial, as far as decisions depend on it.

    Attributes:
        id: Its id.
        label: Its label.
        phase: "search" or "confirmation".
        number: Counts from 0 within label and phase.
        seed: Its seed.
        structure: Trials of equal structure may share a pack.
        configuration: Number of the search trial with the same hyperparameters.
        state: As in `TrialRecord`.
        pack: Pack that ran it last; None if none did.
    """

    id: str
    label: str
    phase: Phase
    number: int
    seed: int
    structure: str = ""
    configuration: int = 0
    state: TrialState = "WAITING"
    pack: str | None = None


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
    """

    trials: tuple[str, ...]
    resume: bool = False


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do."""


Action = Ask | Repeat | LaunchPack | Finish


def decide(
    plan: SearchPlan, rows: Sequence[Row], running: Mapping[str, Sequence[str]], slots: int, choose: Choose
) -> list[Action]:
    """What to do next; call it again once that is done.

    Args:
        plan: What the study asks for.
        rows: All its trials.
        running: Trial ids by running pack.
        slots: How many packs may run at once.
        choose: Chooses what to confirm; called for searches that are finished.

    Returns:
        Empty if the driver can only wait; otherwise a `Repeat` for every label whose confirmation is due, or one `Ask`,
        or a `LaunchPack` for every free slot while there are waiting trials, or `Finish`. Deterministic.
    """
    repeats = _confirmations(plan, rows, choose)
    if repeats:
        return list(repeats)
    if _complete(plan, rows):
        return [Finish()]
    free = slots - len(running)
    if free <= 0:
        return []
    busy = {trial for trials in running.values() for trial in trials}
    candidates = sorted([*_groups(plan, rows, busy), *_questions(plan, rows)], key=lambda found: found[0])
    launches: list[Action] = []
    for _, action in candidates[:free]:
        if isinstance(action, Ask):
            break
        launches.append(action)
    return launches or [action for _, action in candidates[:1]]


def width(plan: SearchPlan, phase: Phase) -> int:
    """Most trials in a pack of this phase."""
    return plan.width if phase == "search" else plan.confirmation_width


def packs(plan: SearchPlan) -> int:
    """Number of packs of a whole study if all trials have the same structure and none is restarted."""
    budget, at_once = plan.budget, plan.asked_at_once // plan.budget.searches
    generations, rest = divmod(budget.trials_per_search, at_once)
    searched = generations * -(-at_once // plan.width) + -(-rest // plan.width)
    confirmed = budget.seeds * -(-budget.confirmed_per_search // plan.confirmation_width)
    return len(plan.labels) * budget.searches * (searched + confirmed)


def deaths_in_a_row(deaths: int, death_round: int | None, newest: int) -> int:
    """How often in a row a trial's worker has died without a newer checkpoint, including this time.

    Args:
        deaths: The number before this death.
        death_round: Largest round of a checkpoint at any earlier death; None at the first death.
        newest: Round of the newest checkpoint now; 0 without one.

    Examples:
        >>> deaths_in_a_row(2, 120, newest=180), deaths_in_a_row(2, 120, newest=120)
        (1, 3)
    """
    return deaths + 1 if death_round is not None and newest <= death_round else 1


def after_death(deaths: int) -> Literal["WAITING", "FAILED"]:
    """State of a trial whose worker has died this many times in a row without a newer checkpoint."""
    return "FAILED" if deaths >= ATTEMPTS else "WAITING"


def _finished(row: Row) -> bool:
    return row.state in TRIAL_FINISHED


def _of(rows: Sequence[Row], label: str, phase: Phase) -> list[Row]:
    return [row for row in rows if row.label == label and row.phase == phase]


def _searched(plan: SearchPlan, rows: Sequence[Row], label: str) -> bool:
    """Whether a label's search is finished."""
    found = _of(rows, label, "search")
    return len(found) >= plan.budget.trials_per_method and all(_finished(row) for row in found)


def _confirmations(plan: SearchPlan, rows: Sequence[Row], choose: Choose) -> list[Repeat]:
    """The missing repeats of every label whose searches are finished."""
    budget = plan.budget
    if not budget.confirmed:
        return []
    searches = range(budget.searches)
    had = {(label, search): _confirmed(plan, rows, label, search) for label in plan.labels for search in searches}
    searched = [label for label in plan.labels if _searched(plan, rows, label)]
    wanted = {
        (label, search): _joined(had[label, search], choose(label, search, budget.confirmed_per_search))
        for label in searched
        for search in searches
    }
    most = max((len(configurations) for configurations in (*wanted.values(), *had.values())), default=0)
    due: list[Repeat] = []
    for label in searched:
        confirmed = _of(rows, label, "confirmation")
        there = {(row.configuration, row.seed) for row in confirmed}
        missing = tuple(
            (configuration, seed)
            for search in searches
            for configuration in _filled(wanted[label, search], most, label, search, choose)
            for seed in (plan.search_seed(configuration) + 1 + index for index in range(budget.seeds))
            if (configuration, seed) not in there
        )
        if missing:
            due.append(Repeat(label, missing, max((row.number + 1 for row in confirmed), default=0)))
    return due


def _confirmed(plan: SearchPlan, rows: Sequence[Row], label: str, search: int) -> list[int]:
    """Configurations of a label's search that have confirmation trials, in the order of creation."""
    confirmed = sorted(_of(rows, label, "confirmation"), key=lambda row: row.number)
    numbers = (row.configuration for row in confirmed)
    return _joined([number for number in numbers if plan.budget.search_of(number) == search])


def _filled(configurations: list[int], most: int, label: str, search: int, choose: Choose) -> list[int]:
    """These configurations, and the next choices of the search, up to this number."""
    if len(configurations) < most:
        return _joined(configurations, choose(label, search, most))[:most]
    return configurations


def _joined(*numbers: Iterable[int]) -> list[int]:
    """All numbers, each once, in order."""
    return list(dict.fromkeys(number for some in numbers for number in some))


def _complete(plan: SearchPlan, rows: Sequence[Row]) -> bool:
    return all(_finished(row) for row in rows) and all(_searched(plan, rows, label) for label in plan.labels)


_Key = tuple[int, int, int, int, int]


class _Order:
    """The order of starts: first packs to resume, then the search, then confirmation.

    Within each of these, the label with the fewest started trials comes first. All labels then progress together, and
    each sampler has as many results as possible when it is asked.
    """

    def __init__(self, plan: SearchPlan, rows: Sequence[Row]) -> None:
        self._place = {label: index for index, label in enumerate(plan.labels)}
        self._handed = Counter(row.label for row in rows if row.state != "WAITING")

    def key(self, label: str, rank: int, question: int, number: int) -> _Key:
        return (rank, self._handed[label], self._place[label], question, number)


def _groups(plan: SearchPlan, rows: Sequence[Row], busy: set[str]) -> list[tuple[_Key, Action]]:
    """A `LaunchPack` for every set of waiting trials that may run together, with its place in the order."""
    order = _Order(plan, rows)
    waiting = sorted(
        (row for row in rows if row.state == "WAITING" and row.id not in busy and row.label in plan.labels),
        key=lambda row: (row.phase != "search", row.number),
    )
    members: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.pack is not None:
            members[row.pack].append(row)
    packs: dict[str, list[Row]] = defaultdict(list)
    fresh: dict[tuple[str, Phase, int, str, int], list[Row]] = defaultdict(list)
    for row in waiting:
        if row.pack is not None and _whole(members[row.pack], width(plan, row.phase)):
            packs[row.pack].append(row)
        else:
            generation = row.number // plan.asked_at_once if row.phase == "search" else 0
            fresh[row.label, row.phase, row.seed, row.structure, generation].append(row)
    found: list[tuple[_Key, Action]] = []
    for group in packs.values():
        launch = LaunchPack(tuple(row.id for row in group), resume=True)
        found.append((order.key(group[0].label, 0, 0, group[0].number), launch))
    for (label, phase, *_), group in fresh.items():
        size = width(plan, phase)
        for start in range(0, len(group), size):
            some = group[start : start + size]
            rank = 1 if phase == "search" else 2
            found.append((order.key(label, rank, 0, some[0].number), LaunchPack(tuple(row.id for row in some))))
    return found


def _whole(pack: Sequence[Row], widest: int) -> bool:
    """Whether a pack may be formed again: all its trials wait, and it did not run out of memory at this width."""
    return len(pack) <= widest and all(row.state == "WAITING" for row in pack)


def _questions(plan: SearchPlan, rows: Sequence[Row]) -> list[tuple[_Key, Action]]:
    """An `Ask` for every label whose next generation may be asked for, with its place in the order."""
    order = _Order(plan, rows)
    found: list[tuple[_Key, Action]] = []
    for label in plan.labels:
        search = _of(rows, label, "search")
        asked = len(search)
        left = plan.budget.trials_per_method - asked
        needed = plan.learned_from(asked) if plan.generation else 0
        if left > 0 and all(_finished(row) for row in search if row.number < needed):
            ask = Ask(label, asked, min(plan.asked_at_once - asked % plan.asked_at_once, left))
            found.append((order.key(label, 1, 1, asked), ask))
    return found
