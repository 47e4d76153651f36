"""What a driver does next: pure rules over the rows of a study.

Two phases. In the *search* every label gets `trials_per_method` configurations, all at the study's seed. When a label's
search is finished, its best `confirm` configurations are each run again on `seeds` fresh seeds: *confirmation*. Trials
of one label, phase, seed and structure run together in a pack; a pack whose worker died, or that was stopped, is formed
again from exactly the same trials, so that its checkpoint fits.

A label's sampler is asked for one generation of configurations after the other. Generation g waits until generation g-2
is complete, and learns from generations up to g-2 only, so that neither the number of workers nor the order in which
trials end changes a proposal.

A study may be extended with more configurations or seeds, even after it has finished. Its search continues, then the
configurations that are best now are repeated in addition to those that were repeated before, all of them on every seed.
If one label has found more new best configurations than another, the other repeats its next best ones, so that all
labels repeat the same number.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from driftline.results.pareto import select
from driftline.study.spec import Budget, confirmed
from driftline.wire.records import TRIAL_FINISHED, Phase, StudyPlan, TrialState

ATTEMPTS = 3
"""A trial fails when its worker has died this many times in a row without a newer checkpoint in between."""


@dataclass(frozen=True)
class Plan:
    """What a study asks for.

    Attributes:
        labels: Labels of its entries, in order.
        trials_per_method: Configurations searched for each label, at least 1.
        confirm: Configurations of each label that are run again.
        seeds: Fresh seeds on which they are repeated; 0 skips confirmation.
        seed: Seed of the search; confirmation uses seed + 1 .. seed + seeds.
        generation: Configurations that a label's sampler is asked for at once; 0 asks for a pack at once, and waits for
            no results.
        width: Most search trials in a pack.
        confirmation_width: Most confirmation trials in a pack.
    """

    labels: tuple[str, ...]
    trials_per_method: int
    confirm: int = 8
    seeds: int = 3
    seed: int = 0
    generation: int = 0
    width: int = 1
    confirmation_width: int = 1

    @classmethod
    def of(cls, labels: tuple[str, ...], budget: Budget, plan: StudyPlan, seed: int = 0) -> Plan:
        """What a study with these labels, this budget and this plan asks for."""
        widths = (plan.generation, plan.width, plan.confirmation_width)
        return cls(labels, budget.trials_per_method, budget.confirm, budget.seeds, seed, *widths)

    @property
    def repeated(self) -> int:
        """Configurations that each label confirms: the same number for every label."""
        return confirmed(self.trials_per_method, self.confirm, self.seeds)

    @property
    def asked_at_once(self) -> int:
        """Configurations that a label's sampler is asked for at once."""
        return self.generation or self.width

    def learned_from(self, first: int) -> int:
        """How many of a label's trials its sampler learns from when it is asked for trial `first` and those after it.

        Examples:
            >>> plan = Plan(labels=("fedavg",), trials_per_method=64, generation=8)
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
        values: The values that the sampler maximises, if it is complete.
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
    values: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Ask:
    """Ask the label's sampler for configurations of its next search trials: numbers `first` .. `first + count - 1`."""

    label: str
    first: int
    count: int


@dataclass(frozen=True)
class Repeat:
    """Create the label's confirmation trials: search trials again on fresh seeds, best first.

    Attributes:
        label: The label.
        repeats: Pairs of a configuration (the number of its search trial) and a fresh seed (counted from 0).
        first: Number of the first new confirmation trial; the others follow.
    """

    label: str
    repeats: tuple[tuple[int, int], ...]
    first: int = 0


@dataclass(frozen=True)
class Launch:
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


Action = Ask | Repeat | Launch | Finish


def decide(plan: Plan, rows: Sequence[Row], running: Mapping[str, Sequence[str]], slots: int) -> list[Action]:
    """What to do next; call it again once that is done.

    Args:
        plan: What the study asks for.
        rows: All its trials.
        running: Trial ids by running pack.
        slots: How many packs may run at once.

    Returns:
        Empty if the driver can only wait; otherwise a `Repeat` for every label whose confirmation is due, or one `Ask`,
        or a `Launch` for every free slot while there are waiting trials, or `Finish`. Deterministic.
    """
    repeats = _confirmations(plan, rows)
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


def width(plan: Plan, phase: Phase) -> int:
    """Most trials in a pack of this phase."""
    return plan.width if phase == "search" else plan.confirmation_width


def packs(plan: Plan) -> int:
    """Number of packs of a whole study if all trials have the same structure and none is restarted."""
    generations, rest = divmod(plan.trials_per_method, plan.asked_at_once)
    searched = generations * -(-plan.asked_at_once // plan.width) + -(-rest // plan.width)
    confirmed = plan.seeds * -(-plan.repeated // plan.confirmation_width)
    return len(plan.labels) * (searched + confirmed)


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


def confirmed_configurations(rows: Iterable[Row], count: int) -> tuple[int, ...]:
    """Numbers of the configurations to repeat, best first.

    Complete trials come first, by non-dominated sorting with crowding. If there are fewer than `count`, diverged and
    then failed ones follow, so that every label repeats the same number.

    Args:
        rows: The finished search trials of one label.
        count: How many.
    """
    return _ranked(list(rows))[:count]


def _finished(row: Row) -> bool:
    return row.state in TRIAL_FINISHED


def _of(rows: Sequence[Row], label: str, phase: Phase) -> list[Row]:
    return [row for row in rows if row.label == label and row.phase == phase]


def _searched(plan: Plan, rows: Sequence[Row], label: str) -> bool:
    """Whether a label's search is finished."""
    found = _of(rows, label, "search")
    return len(found) >= plan.trials_per_method and all(_finished(row) for row in found)


def _confirmations(plan: Plan, rows: Sequence[Row]) -> list[Repeat]:
    """The missing repeats of every label whose search is finished."""
    if not plan.repeated:
        return []
    had = {label: _confirmed(rows, label) for label in plan.labels}
    ranked = {label: _ranked(_of(rows, label, "search")) for label in plan.labels if _searched(plan, rows, label)}
    wanted = {label: tuple(dict.fromkeys((*had[label], *best[: plan.repeated]))) for label, best in ranked.items()}
    most = max(len(configurations) for configurations in (*wanted.values(), *had.values())) if wanted else 0
    due: list[Repeat] = []
    for label, configurations in wanted.items():
        configurations = tuple(dict.fromkeys((*configurations, *ranked[label])))[:most]
        confirmed = _of(rows, label, "confirmation")
        there = {(row.configuration, row.seed - plan.seed - 1) for row in confirmed}
        pairs = [(configuration, index) for configuration in configurations for index in range(plan.seeds)]
        missing = tuple(pair for pair in pairs if pair not in there)
        if missing:
            due.append(Repeat(label, missing, max((row.number + 1 for row in confirmed), default=0)))
    return due


def _confirmed(rows: Sequence[Row], label: str) -> tuple[int, ...]:
    """Configurations of a label that have confirmation trials, in the order of creation."""
    confirmed = sorted(_of(rows, label, "confirmation"), key=lambda row: row.number)
    return tuple(dict.fromkeys(row.configuration for row in confirmed))


def _ranked(rows: Sequence[Row]) -> tuple[int, ...]:
    """Numbers of all configurations of a finished search, best first."""
    return _ranked_finished(tuple(sorted((row.number, row.state, row.values) for row in rows)))


@functools.lru_cache(maxsize=256)  # called at every decision, and a finished search no longer changes
def _ranked_finished(finished: tuple[tuple[int, TrialState, tuple[float, ...] | None], ...]) -> tuple[int, ...]:
    complete = [(number, values) for number, state, values in finished if state == "COMPLETE" and values is not None]
    best = [complete[index][0] for index in select([values for _, values in complete], len(complete))]
    rest = [
        number for wanted in ("DIVERGED", "FAILED", "CANCELLED") for number, state, _ in finished if state == wanted
    ]
    return (*best, *rest)


def _complete(plan: Plan, rows: Sequence[Row]) -> bool:
    return all(_finished(row) for row in rows) and all(_searched(plan, rows, label) for label in plan.labels)


_Key = tuple[int, int, int, int, int]


class _Order:
    """The order of starts: first packs to resume, then the search, then confirmation.

    Within each of these, the label with the fewest started trials comes first. All labels then progress together, and
    each sampler has as many results as possible when it is asked.
    """

    def __init__(self, plan: Plan, rows: Sequence[Row]) -> None:
        self._place = {label: index for index, label in enumerate(plan.labels)}
        self._handed = Counter(row.label for row in rows if row.state != "WAITING")

    def key(self, label: str, rank: int, question: int, number: int) -> _Key:
        return (rank, self._handed[label], self._place[label], question, number)


def _groups(plan: Plan, rows: Sequence[Row], busy: set[str]) -> list[tuple[_Key, Action]]:
    """A `Launch` for every set of waiting trials that may run together, with its place in the order."""
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
        launch = Launch(tuple(row.id for row in group), resume=True)
        found.append((order.key(group[0].label, 0, 0, group[0].number), launch))
    for (label, phase, *_), group in fresh.items():
        size = width(plan, phase)
        for start in range(0, len(group), size):
            some = group[start : start + size]
            rank = 1 if phase == "search" else 2
            found.append((order.key(label, rank, 0, some[0].number), Launch(tuple(row.id for row in some))))
    return found


def _whole(pack: Sequence[Row], widest: int) -> bool:
    """Whether a pack may be formed again: all its trials wait, and it did not run out of memory at this width."""
    return len(pack) <= widest and all(row.state == "WAITING" for row in pack)


def _questions(plan: Plan, rows: Sequence[Row]) -> list[tuple[_Key, Action]]:
    """An `Ask` for every label whose next generation may be asked for, with its place in the order."""
    order = _Order(plan, rows)
    found: list[tuple[_Key, Action]] = []
    for label in plan.labels:
        search = _of(rows, label, "search")
        asked = len(search)
        left = plan.trials_per_method - asked
        needed = plan.learned_from(asked) if plan.generation else 0
        if left > 0 and all(_finished(row) for row in search if row.number < needed):
            ask = Ask(label, asked, min(plan.asked_at_once - asked % plan.asked_at_once, left))
            found.append((order.key(label, 1, 1, asked), ask))
    return found
