"""What a driver does next: pure rules over the rows of a study.

Two phases. In the *search* every label gets `trials_per_method` configurations. Its searches take turns: each proposes
every `searches`-th configuration and has a seed of its own. When all are finished, some configurations of each search
are run again on `seeds` fresh seeds: *confirmation*. Trials of one family of labels, phase, seed and structure run
together in a pack; so do confirmation trials of several seeds where few have the same one and the engine can join them.
A pack whose worker died, or that was stopped, is formed again from exactly the same trials, so that its checkpoint
fits.

A label's samplers are asked for one generation of configurations after the other. Generation g waits until generation
g-2 is complete, and learns from generations up to g-2 only, so that neither the number of workers nor the order in
which trials end changes a proposal. For a label tuned in stages, each generation is a stage, which waits for the one
before it. The labels of a family are asked in turns. Their trials of a generation, or of confirmation, are packed once
all labels have theirs, so that packs do not depend on the number of workers or on that order either.

With rungs, a pack of the search ends at the next rung. Trials that are not promoted there end as STOPPED; the others
are packed again, with trials of their generation that continue until the same rung (see `rungs`).

A study may be extended with more configurations or seeds, even after it has finished. Its search continues, then the
configurations that are chosen now are repeated in addition to those that were repeated before, all of them on every
seed. If one search chooses more new configurations than another, the other repeats its next ones, so that all searches
of all labels repeat the same number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from driftline.study.rung_rounds import arriving_at
from driftline.wire.records import TRIAL_FINISHED, Phase
from service.driver.search.actions import Action, Ask, Finish, LaunchPack, Repeat, SearchPlan, StopTrials
from service.driver.search.rungs import Climb, Goal, goals
from service.driver.search.study_rows import Row, TrialRows

Choose = Callable[[str, int, int], Sequence[int]]
"""Gives the configurations to confirm of a finished search, first choices first: (label, search, how many)."""

ATTEMPTS = 3
"""A trial fails when its worker has died this many times in a row without a newer checkpoint in between."""


def decide(
    plan: SearchPlan, rows: TrialRows, running: Mapping[str, Sequence[str]], slots: int, choose: Choose
) -> list[Action]:
    """What to do next; call it again once that is done.

    Args:
        plan: What the study asks for.
        rows: All its trials.
        running: Trial ids by running pack.
        slots: How many packs may run at once.
        choose: Chooses what to confirm; called for searches that are finished.

    Returns:
        Empty if the driver can only wait; otherwise one `StopTrials`, or a `Repeat` for every label whose confirmation
        is due, or one `Ask`, or a `LaunchPack` for every free slot while there are waiting trials, or `Finish`.
        Deterministic.
    """
    ends = _goals(plan, rows)
    waiting = [row for row in rows.unfinished.values() if row.state == "WAITING"]
    stopped = [row for row in waiting if row.id in ends and ends[row.id].stopped]
    if stopped:
        return [StopTrials(tuple(row.id for row in sorted(stopped, key=lambda row: (row.label, row.number))))]
    repeats = _confirmations(plan, rows, choose)
    if repeats:
        return list(repeats)
    if _complete(plan, rows):
        return [Finish()]
    free = slots - len(running)
    if free <= 0:
        return []
    busy = {trial for trials in running.values() for trial in trials}
    candidates = sorted([*_groups(plan, rows, busy, ends), *_questions(plan, rows)], key=lambda candidate: candidate[0])
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
    return search_packs(plan) + confirmation_packs(plan)


def search_packs(plan: SearchPlan) -> int:
    """Number of the packs of `packs` that belong to the search."""
    at_once = plan.asked_at_once // plan.budget.searches
    generations, rest = divmod(plan.budget.trials_per_search, at_once)
    families = {family for family in plan.family_of.values() if family[0] not in plan.stages}
    staged = sum(_passing(plan, (label,), size) for label in plan.stages for size in _stage_sizes(plan, label))
    searched = (generations * _passing(plan, family, at_once) + _passing(plan, family, rest) for family in families)
    return plan.budget.searches * (sum(searched) + staged)


def _stage_sizes(plan: SearchPlan, label: str) -> Iterator[int]:
    """Trials of each stage of a search of a label."""
    begin = 0
    while begin < plan.budget.trials_per_method:
        end = min(plan.generation_of(label, begin)[1], plan.budget.trials_per_method)
        yield (end - begin) // plan.budget.searches
        begin = end


def confirmation_packs(plan: SearchPlan) -> int:
    """Number of the packs of `packs` that belong to confirmation."""
    pools = 1 if plan.seeds_together else plan.budget.seeds * plan.budget.searches
    confirmed = plan.budget.confirmation_trials // max(pools, 1)
    by_family = (-(-len(family) * confirmed // plan.confirmation_width) for family in set(plan.family_of.values()))
    return pools * sum(by_family)


def _passing(plan: SearchPlan, family: Sequence[str], trials: int) -> int:
    """Number of packs of generations of this size of the labels of a family, at all rungs together."""
    numbers = arriving_at(len(plan.rungs_of(family[0])), trials)
    return sum(-(-len(family) * number // plan.width) for number in numbers)


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


def goal_of(plan: SearchPlan, rows: TrialRows, trial: str) -> Goal:
    """How far a search trial may train, with rungs."""
    return _goals(plan, rows)[trial]


def _goals(plan: SearchPlan, rows: TrialRows) -> dict[str, Goal]:
    """How far each search trial may train, by id; empty without rungs."""
    counts = {label: len(plan.rungs_of(label)) for label in plan.labels}
    if max(counts.values(), default=1) == 1:
        return {}
    searches: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
    for row in rows.values():
        if row.phase == "search" and counts.get(row.label, 1) > 1:
            searches[row.label, plan.budget.search_of(row.number)][row.number] = row
    ends: dict[str, Goal] = {}
    for (label, _), search_rows in searches.items():
        climbs = [_climb(plan, row) for row in search_rows.values()]
        by_number = goals(plan.rule, counts[label], climbs, together=plan.budget.asking == "generations")
        ends |= {search_rows[number].id: goal for number, goal in by_number.items()}
    return ends


def _climb(plan: SearchPlan, row: Row) -> Climb:
    ended = row.state in TRIAL_FINISHED - {"COMPLETE", "STOPPED"}
    passed = sum(row.rounds_done > rung for rung in plan.rungs_of_trial(row)[:-1])
    generation, _ = plan.generation_of(row.label, row.number)
    return Climb(row.number, generation, row.arrivals, ended, passed, row.state == "STOPPED")


def _searched(plan: SearchPlan, rows: TrialRows, label: str) -> bool:
    """Whether a label's search is finished."""
    return len(rows.of(label, "search")) >= plan.budget.trials_per_method and not any(_searching(rows, label))


def _searching(rows: TrialRows, label: str) -> Iterator[Row]:
    """A label's unfinished search trials."""
    return (row for row in rows.unfinished.values() if row.label == label and row.phase == "search")


def _confirmations(plan: SearchPlan, rows: TrialRows, choose: Choose) -> list[Repeat]:
    """The missing repeats of every label whose searches are finished."""
    budget = plan.budget
    if not budget.confirmed:
        return []
    searches = range(budget.searches)
    had = {(label, search): _confirmed(plan, rows, label, search) for label in plan.labels for search in searches}
    searched = [label for label in plan.labels if _searched(plan, rows, label)]
    to_confirm = {
        (label, search): _joined(had[label, search], choose(label, search, budget.confirmed_per_search))
        for label in searched
        for search in searches
    }
    most = max((len(configurations) for configurations in (*to_confirm.values(), *had.values())), default=0)
    due: list[Repeat] = []
    for label in searched:
        confirmed = rows.of(label, "confirmation")
        existing = {(row.configuration, row.seed) for row in confirmed}
        missing = tuple(
            (configuration, seed)
            for search in searches
            for configuration in _filled(to_confirm[label, search], most, label, search, choose)
            for seed in (plan.search_seed(configuration) + 1 + index for index in range(budget.seeds))
            if (configuration, seed) not in existing
        )
        if missing:
            due.append(Repeat(label, missing, max((row.number + 1 for row in confirmed), default=0)))
    return due


def _confirmed(plan: SearchPlan, rows: TrialRows, label: str, search: int) -> list[int]:
    """Configurations of a label's search that have confirmation trials, in the order of creation."""
    confirmed = sorted(rows.of(label, "confirmation"), key=lambda row: row.number)
    numbers = (row.configuration for row in confirmed)
    return _joined([number for number in numbers if plan.budget.search_of(number) == search])


def _filled(configurations: list[int], most: int, label: str, search: int, choose: Choose) -> list[int]:
    """These configurations, and the next choices of the search, up to this number."""
    if len(configurations) < most:
        return _joined(configurations, choose(label, search, most))[:most]
    return configurations


def _joined(*numbers: Iterable[int]) -> list[int]:
    """All numbers, each once, in order."""
    return list(dict.fromkeys(number for part in numbers for number in part))


def _complete(plan: SearchPlan, rows: TrialRows) -> bool:
    return not rows.unfinished and all(_searched(plan, rows, label) for label in plan.labels)


_Key = tuple[int, int, int, int, int]


class _Order:
    """The order of starts: first packs to resume, then the search, then confirmation.

    Within each of these, the label with the fewest started trials comes first. All labels then progress together, and
    each sampler has as many results as possible when it is asked.
    """

    def __init__(self, plan: SearchPlan, rows: TrialRows) -> None:
        self._place = {label: index for index, label in enumerate(plan.labels)}
        waiting = Counter(row.label for row in rows.unfinished.values() if row.state == "WAITING")
        self._handed = {
            label: len(rows.of(label, "search")) + len(rows.of(label, "confirmation")) - waiting[label]
            for label in plan.labels
        }

    def key(self, labels: Iterable[str], rank: int, question: int, number: int) -> _Key:
        """The sort key of a pack with trials of these labels, or of an `Ask` for one label."""
        handed, position = min((self._handed[label], self._place[label]) for label in labels)
        return (rank, handed, position, question, number)


def _groups(plan: SearchPlan, rows: TrialRows, busy: set[str], ends: Mapping[str, Goal]) -> list[tuple[_Key, Action]]:
    """A `LaunchPack` for every set of waiting trials that may run together, with its place in the order."""
    order = _Order(plan, rows)
    waiting = _ordered(
        plan,
        (
            row
            for row in rows.unfinished.values()
            if row.state == "WAITING" and row.id not in busy and row.label in plan.labels
        ),
    )
    rungs = {row.id: ends[row.id].rung if row.id in ends else None for row in waiting}
    members: dict[str, list[Row]] = {row.pack: [] for row in waiting if row.pack is not None}
    for row in _ordered(plan, (row for row in rows.values() if row.pack in members)) if members else ():
        members[str(row.pack)].append(row)
    packs: dict[str, list[Row]] = {}
    fresh: dict[tuple[tuple[str, ...], Phase, int | None, str, int, int | None], list[Row]] = defaultdict(list)
    families = {plan.family_of[row.label] for row in waiting}
    wholly_asked = {family: _wholly_asked(plan, rows, family) for family in families if len(family) > 1}
    for row in waiting:
        rung, rounds = rungs[row.id], plan.rungs_of_trial(row)
        if row.id in ends and _at_goal(row, ends[row.id], len(rounds)):
            continue
        begun = not rung or row.rounds_done > rounds[rung - 1]  # since the last rung
        if row.pack is not None and begun and _whole(members[row.pack], width(plan, row.phase), rungs):
            packs[row.pack] = members[row.pack]
        else:
            generation = plan.generation_of(row.label, row.number)[0] if row.phase == "search" else 0
            family = plan.family_of[row.label]
            if family not in wholly_asked or generation < wholly_asked[family][row.phase]:
                seed = None if plan.seeds_together and row.phase == "confirmation" else row.seed
                fresh[family, row.phase, seed, row.structure, generation, rung].append(row)
    launches: list[tuple[_Key, Action]] = []
    for group in packs.values():
        launch = LaunchPack(tuple(row.id for row in group), resume=True, rung=rungs[group[0].id])
        launches.append((order.key({row.label for row in group}, 0, 0, _first(group)), launch))
    for (_, phase, *_), group in fresh.items():
        size, rank = width(plan, phase), 1 if phase == "search" else 2
        key = order.key({row.label for row in group}, rank, 0, _first(group))
        for start in range(0, len(group), size):
            pack_rows = group[start : start + size]
            launches.append((key, LaunchPack(tuple(row.id for row in pack_rows), rung=rungs[pack_rows[0].id])))
    return launches


def _wholly_asked(plan: SearchPlan, rows: TrialRows, family: Sequence[str]) -> dict[Phase, int]:
    """Generations of the search that all labels of a family have; for confirmation, 1 if all searches have finished."""
    least = min(len(rows.of(label, "search")) for label in family)
    whole = least >= plan.budget.trials_per_method
    generations = -(-least // plan.asked_at_once) if whole else least // plan.asked_at_once
    return {"search": generations, "confirmation": int(all(_searched(plan, rows, label) for label in family))}


def _first(rows: Iterable[Row]) -> int:
    return min(row.number for row in rows)


def _ordered(plan: SearchPlan, rows: Iterable[Row]) -> list[Row]:
    """The search before confirmation; in each, trials with the most local steps first, except with branches.

    A pack works until the last of its trials is done, so its trials should have about equal work. The longest packs
    begin first, so that workers end at about the same time.
    """
    positions = {label: index for index, label in enumerate(plan.labels)}

    def key(row: Row) -> tuple[bool, float, int, int]:
        steps = 0 if plan.budget.branches > 1 else row.hyperparameters.get("local_steps", 0)
        work = steps if isinstance(steps, int | float) else 0
        return (row.phase != "search", -work, row.number, positions.get(row.label, 0))

    return sorted(rows, key=key)


def _at_goal(row: Row, goal: Goal, rungs: int) -> bool:
    """Whether a trial waits at a rung for a decision.

    Its rounds alone do not show this: if its worker or driver died after its last report, it must still end as
    COMPLETE, DIVERGED or FAILED, and trains this part again with its whole pack.
    """
    return goal.rung < rungs - 1 and len(row.arrivals) > goal.rung


def _whole(pack: Sequence[Row], widest: int, rungs: Mapping[str, int | None]) -> bool:
    """Whether a pack may be formed again: all its trials wait and train until the same rung, and memory sufficed.

    Args:
        pack: Its trials.
        widest: Most trials in a pack since one ran out of memory.
        rungs: Of each waiting trial, the rung until which it trains.
    """
    waiting = all(row.id in rungs for row in pack)
    return len(pack) <= widest and waiting and len({rungs[row.id] for row in pack}) == 1


def _questions(plan: SearchPlan, rows: TrialRows) -> list[tuple[_Key, Action]]:
    """An `Ask` for every label whose next generation may be asked for, with its place in the order."""
    order = _Order(plan, rows)
    questions: list[tuple[_Key, Action]] = []
    for label in plan.labels:
        count = len(rows.of(label, "search"))
        left = plan.budget.trials_per_method - count
        needed = plan.learned_from(count, label) if plan.waits(label) else 0
        next_in_turn = all(count <= len(rows.of(family_label, "search")) for family_label in plan.family_of[label])
        if left > 0 and next_in_turn and all(row.number >= needed for row in _searching(rows, label)):
            ask = Ask(label, count, min(plan.generation_of(label, count)[1] - count, left))
            questions.append((order.key((label,), 1, 1, count), ask))
    return questions
