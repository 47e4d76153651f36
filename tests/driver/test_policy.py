"""The rules of the driver: by hand, and as properties of whole simulated studies."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.study.budget import Budget
from driftline.study.spec import Resources
from service.driver.search import policy
from service.driver.search.actions import Action, Ask, Finish, LaunchPack, Repeat, SearchPlan, StopTrials
from service.driver.search.forecast import Prospect
from service.driver.search.policy import ATTEMPTS, Choose, after_death, confirmation_packs, deaths_in_a_row, packs
from service.driver.search.rules import RULES, Arrival
from service.driver.search.study_plan import data_seed, decided, proposed_at_once, sampler_seed
from service.driver.search.study_rows import Row, TrialRows

RUNGS = [1, 4]
ENDED = ("COMPLETE", "STOPPED", "DIVERGED", "FAILED")


def budget(trials: int, **changes: Any) -> Budget:
    return Budget(trials_per_method=trials, rounds=10, **changes)


PLAN = SearchPlan(labels=("a", "b"), budget=budget(4, confirm=2, seeds=2), width=2, confirmation_width=2)


def first_come(label: str, search: int, count: int) -> Sequence[int]:
    """Chooses configurations in the order of their numbers, of at most 20 of one search."""
    return range(20)[:count]


def decide(
    plan: SearchPlan, rows: Sequence[Row], running: Mapping[str, Sequence[str]], slots: int, choose: Choose = first_come
) -> list[Action]:
    return policy.decide(plan, TrialRows(rows), running, slots, choose)


def searched(label: str, count: int, **changes: Any) -> list[Row]:
    return [replace(Row(f"{label}{n}", label, "search", n, 0), **changes) for n in range(count)]


def confirmation(label: str, number: int, configuration: int, seed: int, **more: Any) -> Row:
    return Row(f"{label}.c{number}", label, "confirmation", number, seed, configuration=configuration, **more)


def test_waiting_trials_are_launched_before_the_same_label_is_asked_again() -> None:
    assert decide(PLAN, searched("a", 2), {}, slots=2) == [LaunchPack(("a0", "a1"))]


def test_the_label_that_has_been_handed_out_least_comes_first_once_a_slot_is_free() -> None:
    rows = searched("a", 2, state="RUNNING", pack="p")
    assert decide(PLAN, rows, {"p": ("a0", "a1")}, slots=2) == [Ask("b", 0, 2)]
    assert decide(PLAN, rows, {"p": ("a0", "a1")}, slots=1) == []


def test_a_lost_pack_is_formed_again_whole_and_first() -> None:
    rows = [*searched("a", 2, pack="p"), *searched("b", 1)]
    assert decide(PLAN, rows, {}, slots=1) == [LaunchPack(("a0", "a1"), resume=True)]


def test_a_pack_that_is_too_wide_is_cut_anew() -> None:
    rows = searched("a", 4, pack="p")
    assert decide(PLAN, rows, {}, slots=2) == [LaunchPack(("a0", "a1")), LaunchPack(("a2", "a3"))]


def test_the_rest_of_a_pack_of_which_some_have_finished_starts_afresh() -> None:
    rows = searched("a", 3, pack="p")
    rows[0] = replace(rows[0], state="FAILED")
    assert decide(replace(PLAN, labels=("a",), generation=4), rows, {}, slots=1) == [LaunchPack(("a1", "a2"))]


def test_a_pack_that_died_after_its_report_at_a_rung_is_formed_again_though_one_trial_diverged() -> None:
    plan = replace(PLAN, labels=("a",), budget=budget(2, rungs=RUNGS), generation=2)
    rows = searched("a", 2, pack="p", rounds_done=1)
    rows[1] = replace(rows[1], arrivals=(Arrival((0.5, 0.5)),))
    assert decide(plan, rows, {}, slots=2) == [LaunchPack(("a0", "a1"), resume=True, rung=0)]
    rows[0] = replace(rows[0], state="DIVERGED")
    assert decide(plan, rows, {}, slots=2) == [LaunchPack(("a1",), rung=1)]


def chosen(*configurations: int) -> Choose:
    """Chooses these first."""
    return lambda label, search, count: configurations[:count]


def test_the_chosen_configurations_of_a_finished_label_are_confirmed() -> None:
    rows = searched("a", 4, state="COMPLETE")
    expected = Repeat("a", ((3, 1), (3, 2), (0, 1), (0, 2)), first=0)
    assert decide(PLAN, rows, {}, slots=1, choose=chosen(3, 0, 1, 2)) == [expected]


def test_searches_take_turns_and_each_confirms_its_own_on_seeds_of_its_own() -> None:
    plan = replace(PLAN, labels=("a",), budget=budget(8, confirm=4, seeds=2, searches=2), generation=0)
    seeds = [plan.search_seed(number) for number in range(8)]
    assert seeds[::2] == [0] * 4
    assert len(set(seeds[1::2])) == 1
    assert seeds[1] != 0
    rows = [replace(row, seed=seed) for row, seed in zip(searched("a", 4), seeds, strict=False)]
    assert decide(plan, rows, {}, slots=2) == [LaunchPack(("a0", "a2")), LaunchPack(("a1", "a3"))]
    assert decide(plan, [], {}, slots=1) == [Ask("a", 0, 4)]
    rows = [replace(row, seed=seed, state="COMPLETE") for row, seed in zip(searched("a", 8), seeds, strict=True)]
    numbers = {0: (4, 0, 2, 6), 1: (3, 7, 1, 5)}
    found = decide(plan, rows, {}, slots=1, choose=lambda label, search, count: numbers[search][:count])
    other = seeds[1]
    assert found == [
        Repeat(
            "a", tuple((n, s) for n in (4, 0) for s in (1, 2)) + tuple((n, other + s) for n in (3, 7) for s in (1, 2))
        )
    ]


@pytest.mark.parametrize(
    ("trials", "packs", "sampler", "gpus", "labels", "expected"),
    [
        (64, "auto", "tpe", 0, 1, (8, 0, 4, 8)),
        (64, "auto", "tpe", 1, 1, (8, 0, 8, 8)),
        (64, "auto", "tpe", 0, 3, (8, 0, 4, 8)),
        (64, "auto", "tpe", 0, 4, (8, 0, 8, 8)),
        (16, "auto", "tpe", 0, 1, (4, 0, 4, 8)),
        (1000, "auto", "gp", 0, 1, (16, 0, 8, 8)),
        (6, "auto", "tpe", 1, 1, (4, 0, 2, 6)),
        (1, "auto", "tpe", 0, 1, (4, 0, 1, 1)),
        (64, "auto", "random", 0, 1, (0, 64, 8, 8)),
        (512, "auto", "random", 0, 1, (0, 64, 16, 8)),
        (16, "auto", "quasi_random", 0, 8, (0, 64, 8, 16)),  # packs of several seeds
        (1024, "auto", "random", 1, 1, (0, 128, 128, 8)),
        (10_000, "auto", "random", 0.5, 1, (0, 512, 512, 8)),
        (64, 3, "tpe", 0, 1, (8, 0, 3, 3)),
        (64, 12, "tpe", 0, 1, (8, 0, 8, 12)),  # a pack holds trials of one generation
        (64, 12, "grid", 0, 1, (0, 60, 12, 12)),
        (64, 100, "grid", 0, 1, (0, 100, 100, 100)),
    ],
)
def test_the_plan_of_a_new_study(
    trials: int, packs: int | str, sampler: str, gpus: float, labels: int, expected: tuple[int, int, int, int]
) -> None:
    whole = budget(trials, seeds=3)
    alone = tuple((str(label),) for label in range(labels))
    rest = Resources.from_json({"packs": packs}), sampler, gpus, alone
    plan = decided(whole, *rest)
    asked = proposed_at_once(whole, plan)
    assert (plan.generation, asked, plan.width, plan.confirmation_width) == expected
    searches = budget(6 * trials, seeds=3, confirm=48, searches=6)
    several = decided(searches, *rest)
    assert (several.generation, several.width) == (6 * plan.generation, plan.width), "of each search"
    assert proposed_at_once(searches, several) == 6 * asked
    late = whole.model_copy(update={"asking": "asynchronous"})
    waiting = decided(late, Resources(), sampler, gpus, alone)
    assert (waiting.generation, proposed_at_once(late, waiting)) == (0, 0)


@pytest.mark.parametrize(
    ("trials", "sampler", "gpus", "labels", "together", "expected"),
    [
        (16, "tpe", 0, 8, 8, (4, 16, 16)),
        (16, "tpe", 0, 8, 4, (4, 8, 16)),
        (16, "tpe", 1, 8, 4, (4, 16, 16)),
        (16, "tpe", 0, 2, 2, (4, 4, 16)),
        (16, "quasi_random", 0, 8, 8, (0, 16, 16)),
    ],
)
def test_packs_of_several_labels_are_wider(
    trials: int, sampler: str, gpus: float, labels: int, together: int, expected: tuple[int, int, int]
) -> None:
    names = tuple(map(str, range(labels)))
    families = tuple(names[start : start + together] for start in range(0, labels, together))
    plan = decided(budget(trials, seeds=3), Resources(), sampler, gpus, families)
    assert (plan.generation, plan.width, plan.confirmation_width) == expected


@pytest.mark.parametrize(
    ("confirm", "seeds", "searches", "labels", "packs", "expected"),
    [
        (6, 6, 6, 2, "auto", (9, True)),  # 72 trials, each with a seed of its own
        (6, 6, 6, 1, "auto", (4, True)),
        (4, 6, 1, 1, "auto", (4, False)),  # 24 trials, in 6 packs of one seed
        (1, 6, 1, 2, "auto", (1, False)),  # 12 trials: wider packs would be fewer than 8
        (12, 10, 12, 4, "auto", (16, True)),
        (6, 6, 6, 2, 12, (12, False)),
    ],
)
def test_seeds_share_packs_where_few_trials_have_the_same_one(
    confirm: int, seeds: int, searches: int, labels: int, packs: int | str, expected: tuple[int, bool]
) -> None:
    whole = budget(48, seeds=seeds, confirm=confirm, searches=searches)
    alone = tuple((str(label),) for label in range(labels))
    plan = decided(whole, Resources.from_json({"packs": packs}), "tpe", 0, alone)
    assert (plan.confirmation_width, plan.seeds_together) == expected
    assert ("seeds_together" in plan.model_dump()) is plan.seeds_together
    assert not SearchPlan.of(("a",), whole, plan).seeds_together, "the engine has not said that it joins them"
    said = plan.model_copy(update={"engine": {"joins_seeds": True}})
    assert SearchPlan.of(("a",), whole, said).seeds_together is plan.seeds_together
    branching = whole.model_copy(update={"branches": 2})
    assert not decided(branching, Resources(), "tpe", 0, alone).seeds_together


def test_confirmation_trials_of_several_seeds_are_packed_by_their_work() -> None:
    settings = budget(4, confirm=2, seeds=3)
    plan = SearchPlan(labels=("a",), budget=settings, confirmation_width=4, seeds_together=True)
    done = [replace(row, hyperparameters={"local_steps": 1}) for row in searched("a", 4, state="COMPLETE")]
    steps = {0: 1, 1: 5}
    waiting = [
        replace(row, state="WAITING", hyperparameters={"local_steps": steps[row.configuration]})
        for row in repeated("a", (0, 1), 3)
    ]
    ids = {(row.configuration, row.seed): row.id for row in waiting}
    first = tuple(ids[one] for one in ((1, 1), (1, 2), (1, 3), (0, 1)))
    rest = tuple(ids[one] for one in ((0, 2), (0, 3)))
    assert decide(plan, [*done, *waiting], {}, slots=9) == [LaunchPack(first), LaunchPack(rest)]
    assert confirmation_packs(plan) == 2
    running = [replace(row, state="RUNNING", pack="p") if row.id in first else row for row in waiting]
    assert decide(plan, [*done, *running], {"p": first}, slots=9) == [LaunchPack(rest)]
    lost = [replace(row, pack="p") if row.id in first else row for row in waiting]
    assert decide(plan, [*done, *lost], {}, slots=1) == [LaunchPack(first, resume=True)]
    by_seed = replace(plan, seeds_together=False)
    assert len(decide(by_seed, [*done, *waiting], {}, slots=9)) == confirmation_packs(by_seed) == 3


def test_one_seed_is_confirmed_in_two_packs() -> None:
    assert decided(budget(64, seeds=1), Resources(), "tpe").confirmation_width == 4


def test_trials_that_are_proposed_at_once_are_packed_by_their_work() -> None:
    steps = [1, 5, 10, 1, 5, 10, 1, 5]
    rows = [
        replace(row, hyperparameters={"local_steps": own}) for row, own in zip(searched("a", 8), steps, strict=True)
    ]
    plan = SearchPlan(labels=("a",), budget=budget(8), width=2, asked=8)
    packed = [("a2", "a5"), ("a1", "a4"), ("a7", "a0"), ("a3", "a6")]
    assert sorted(map(str, decide(plan, rows, {}, slots=4))) == sorted(str(LaunchPack(own)) for own in packed)
    running = {"p": ("a2", "a5")}
    rows = [replace(row, state="RUNNING", pack="p") if row.id in running["p"] else row for row in rows]
    left = decide(plan, rows, running, slots=4)
    assert sorted(map(str, left)) == sorted(str(LaunchPack(own)) for own in packed[1:]), "whatever the number of slots"
    trunks = replace(plan, budget=budget(8, branches=2))
    assert LaunchPack(("a6", "a7")) in decide(trunks, rows, running, slots=9), "branches stay with their trunk"


def test_seeds_of_samplers_and_data_differ_between_studies_and_searches() -> None:
    assert len({sampler_seed(study, search) for study in (0, 1) for search in range(6)}) == 12
    assert all(0 <= sampler_seed(study) < 2**32 for study in range(20))
    assert (data_seed(5), data_seed(5, 1) == data_seed(5, 1)) == (5, True)
    assert len({data_seed(5, search) for search in range(4)} | {data_seed(6, 1)}) == 5


def generations(label: str, count: int, finished: int) -> list[Row]:
    """Search trials of which the first ones are finished, the others in training."""
    return [replace(row, state="COMPLETE" if row.number < finished else "RUNNING") for row in searched(label, count)]


def test_a_generation_is_asked_for_when_the_one_before_the_last_is_complete() -> None:
    plan = SearchPlan(labels=("a",), budget=budget(11), width=2, generation=4)
    assert decide(plan, [], {}, slots=1) == [Ask("a", 0, 4)]
    assert decide(plan, generations("a", 4, 0), {}, slots=1) == [Ask("a", 4, 4)]
    assert decide(plan, generations("a", 8, 3), {}, slots=1) == []
    assert decide(plan, generations("a", 8, 4), {}, slots=1) == [Ask("a", 8, 3)]
    late = [replace(row, state="RUNNING" if row.number == 2 else "COMPLETE") for row in searched("a", 8)]
    assert decide(plan, late, {}, slots=1) == []


def test_a_generation_that_was_cut_off_is_completed_first() -> None:
    plan = SearchPlan(labels=("a",), budget=budget(12), width=4, generation=4)
    assert decide(plan, generations("a", 6, 6), {}, slots=1) == [Ask("a", 6, 2)]


def test_a_stage_is_asked_for_when_all_trials_of_the_one_before_have_ended() -> None:
    for generation in (0, 4):
        plan = SearchPlan(labels=("a",), budget=budget(8), width=2, generation=generation, stages={"a": [3, 1, 2]})
        assert decide(plan, [], {}, slots=1) == [Ask("a", 0, 3)]
        assert decide(plan, generations("a", 3, 2), {}, slots=1) == []
        assert decide(plan, generations("a", 3, 3), {}, slots=1) == [Ask("a", 3, 1)]
        assert decide(plan, generations("a", 5, 4), {}, slots=1) == [Ask("a", 5, 1)], "the rest of a stage at once"
        assert decide(plan, generations("a", 6, 6), {}, slots=1) == [Ask("a", 6, 1)]
        assert [plan.learned_from(first, "a") for first in (0, 2, 3, 5, 6)] == [0, 0, 3, 4, 6]
        assert decide(plan, searched("a", 6), {}, slots=1) == [LaunchPack(("a0", "a1"))]
        packed = [action for action in decide(plan, searched("a", 6), {}, slots=9) if isinstance(action, LaunchPack)]
        assert packed[1:] == [LaunchPack(("a2",)), LaunchPack(("a3",)), LaunchPack(("a4", "a5"))], "of one stage"


def test_without_generations_no_result_is_waited_for() -> None:
    plan = SearchPlan(labels=("a",), budget=budget(12), width=4)
    assert decide(plan, generations("a", 8, 0), {}, slots=1) == [Ask("a", 8, 4)]


def test_packs_of_a_whole_study() -> None:
    plan = SearchPlan(("a", "b"), budget(11, confirm=3, seeds=2), width=3, confirmation_width=2, generation=4)
    assert packs(plan) == 2 * (2 + 2 + 1 + 2 * 2)
    several = replace(plan, budget=budget(33, confirm=9, seeds=2, searches=3), generation=12)
    assert packs(several) == 3 * packs(plan)
    staged = replace(plan, stages={"b": [3, 1, 2]})  # stages of 3, 1, 2, 1, 2, 1, 1
    assert packs(staged) == (2 + 2 + 1 + 2 * 2) + (7 + 2 * 2)
    assert packs(replace(several, stages={"b": [9, 3, 6]})) == 3 * packs(staged)


@pytest.mark.parametrize(
    ("newest", "counted"),
    [
        ([0, 0, 0], [1, 2, 3]),  # it never comes to a checkpoint
        ([7, 7, 7], [1, 2, 3]),
        ([7, 8, 8, 9, 9, 9], [1, 1, 2, 1, 2, 3]),
        ([7, 5, 6], [1, 2, 3]),  # its checkpoints were lost: it comes back to where it was, and no further
        ([7, 5, 8, 6, 8], [1, 2, 1, 2, 3]),
        (range(0, 1000, 10), [1] * 100),
    ],
)
def test_deaths_count_as_long_as_no_newer_checkpoint_is_there(newest: Sequence[int], counted: list[int]) -> None:
    deaths, furthest = 0, None
    found = []
    for round_number in newest:
        deaths = deaths_in_a_row(deaths, furthest, round_number)
        furthest = max(round_number, furthest or 0)
        found.append(deaths)
    assert found == counted


class Simulation:
    """A driver's loop with workers that finish, diverge, die and get stopped as a random generator says."""

    def __init__(self, plan: SearchPlan, chance: random.Random, deadliness: float) -> None:
        self.asked: dict[str, set[str]] = {}  # by the first trial of a question: what its sampler could learn from
        self.packs: set[tuple[str, ...]] = set()
        self.plan = plan
        self.chance = chance
        self.deadliness = deadliness
        self.rows: dict[str, Row] = {}
        self.deaths: dict[str, int] = {}
        self.checkpoints: Counter[str] = Counter()
        self.running: dict[str, tuple[str, ...]] = {}
        self.rungs: dict[str, int | None] = {}  # by pack
        self.started = 0
        self.steps = 0

    def run(self, slots: int) -> None:
        while True:
            self.steps += 1
            assert self.steps < 10_000, "no progress"
            slots_now = max(1, slots + self.chance.choice((-1, 0, 0, 1)))
            rows = list(self.rows.values())
            actions = decide(self.plan, rows, self.running, slots_now, self.choose)
            self.chance.shuffle(rows)
            again = decide(self.plan, rows, self.running, slots_now, self.choose)
            assert again == actions, "depends on the order of the rows"
            if actions == [Finish()]:
                assert not self.running
                return
            if not actions:
                assert self.running, "waits for nothing"
                self.end_one()
                continue
            for action in actions:
                self.do(action, slots_now)
            if self.running and self.chance.random() < 0.3:
                self.end_one()

    def generation(self, row: Row) -> int:
        """That of a search trial; the repeats of a study are of one."""
        return self.plan.generation_of(row.label, row.number)[0] if row.phase == "search" else 0

    def choose(self, label: str, search: int, count: int) -> list[int]:
        """Some order of a search's configurations."""
        budget = self.plan.budget
        numbers = range(search, budget.trials_per_method, budget.searches)
        return sorted(numbers, key=lambda number: random.Random(f"{label}{number}").random())[:count]

    def do(self, action: Action, slots: int) -> None:
        plan = self.plan
        match action:
            case Ask(label, first, count):
                before = {row.id for row in self.rows.values() if row.label == label and row.phase == "search"}
                learned = {
                    row.id
                    for row in self.rows.values()
                    if row.id in before and row.number < plan.learned_from(first, label)
                }
                if plan.waits(label):
                    assert all(self.rows[trial].state in ENDED for trial in learned)
                self.asked[f"{label}.s{first}"] = learned
                for number in range(first, first + count):
                    structure = random.Random(f"{label}{number}").choice("xxy")
                    seed = plan.search_seed(number)
                    self.add(Row(f"{label}.s{number}", label, "search", number, seed, structure, configuration=number))
            case Repeat(label, repeats, first):
                for number, (configuration, seed) in enumerate(repeats, first):
                    structure = self.rows[f"{label}.s{configuration}"].structure
                    self.add(confirmation(label, number, configuration, seed, structure=structure))
            case StopTrials(trials):
                for trial in trials:
                    assert self.rows[trial].state == "WAITING"
                    assert self.rows[trial].rounds_done in RUNGS
                    self.rows[trial] = replace(self.rows[trial], state="STOPPED")
            case LaunchPack(trials, resume, rung):
                busy = {trial for pack in self.running.values() for trial in pack}
                assert not busy & set(trials), "a trial runs twice"
                assert len(set(trials)) == len(trials)
                assert len(self.running) < slots, "more packs than slots"
                own = [self.rows[trial] for trial in trials]
                kinds = {
                    (plan.family_of[row.label], row.phase, row.seed, row.structure, self.generation(row)) for row in own
                }
                assert len(kinds) == 1
                if resume:
                    packs = {self.rows[trial].pack for trial in trials}
                    assert len(packs) == 1
                    assert {row.id for row in self.rows.values() if row.pack in packs} == set(trials)
                self.packs.add(trials)
                self.started += 1
                name = f"p{self.started}"
                self.running[name] = trials
                self.rungs[name] = rung
                if rung is not None:
                    again = [*RUNGS, 10][rung]  # its worker died after its last report
                    for row in map(self.rows.__getitem__, trials):
                        assert row.rounds_done in ([0, *RUNGS][rung], again)
                for trial in trials:
                    assert self.rows[trial].state == "WAITING"
                    self.rows[trial] = replace(self.rows[trial], state="RUNNING", pack=name)

    def add(self, row: Row) -> None:
        assert row.id not in self.rows, "created twice"
        self.rows[row.id] = row

    def end_one(self) -> None:
        pack = self.chance.choice(sorted(self.running))
        trials = self.running.pop(pack)
        fate = self.chance.random()
        progress = self.chance.random() < 0.5
        for trial in trials:
            row = self.rows[trial]
            if fate < self.deadliness:
                last = self.checkpoints[trial] if self.deaths.get(trial) else None
                self.checkpoints[trial] += progress
                self.deaths[trial] = deaths_in_a_row(self.deaths.get(trial, 0), last, self.checkpoints[trial])
                self.rows[trial] = replace(row, state=after_death(self.deaths[trial]))
            elif fate < self.deadliness + 0.1:
                row = self.trained(row, self.rungs[pack]) if progress else row  # or all was reported but the end
                self.rows[trial] = replace(row, state="WAITING")  # stopped, or the driver was replaced
            else:
                self.rows[trial] = self.trained(row, self.rungs[pack])

    def trained(self, row: Row, rung: int | None) -> Row:
        """The trial at the end of its pack: at a rung or after its last round."""
        chance = random.Random(f"{row.id} {rung}")
        rounds = [*RUNGS, 10][2 if rung is None else rung]
        if chance.random() < 0.1:
            return replace(row, state="DIVERGED", rounds_done=rounds)
        values, end = (chance.random(), chance.random()), chance.random()
        prospect = Prospect((1.0, 3.0, 9.0), (0.1, values[0], values[0] + end), (0.0, 0.0, end / 2), 0.0)
        arrived = () if rung is None else (*row.arrivals[:rung], Arrival(values, prospect))
        return replace(row, state="WAITING" if rounds < 10 else "COMPLETE", rounds_done=rounds, arrivals=arrived)


@st.composite
def plans(draw: st.DrawFn) -> SearchPlan:
    """Plans of one to three labels: with searches, rungs, families that share packs, and a label tuned in stages."""
    labels, searches, family = (draw(st.integers(1, 3)) for _ in range(3))
    width, generation = draw(st.sampled_from([1, 3, 16])), draw(st.sampled_from([0, 1, 2, 5]))
    trials, confirm, seeds = draw(st.integers(1, 12)), draw(st.integers(1, 6)), draw(st.integers(0, 3))
    stopping = {"rungs": RUNGS} if draw(st.booleans()) and generation and family == 1 else {}
    whole = budget(searches * trials, confirm=searches * confirm, seeds=seeds, searches=searches, **stopping)
    plan = SearchPlan(tuple("abc"[:labels]), whole, 7, searches * generation, width, width)
    staged = draw(st.booleans())
    stages = {plan.labels[-1]: [3 * searches, searches, 2 * searches]} if staged else {}
    together = plan.labels[:-1] if staged else plan.labels
    return replace(plan, families=(together[:family],), stages=stages)


@given(plans(), st.integers(1, 5), st.sampled_from([0.0, 0.2, 0.6]), st.integers(0, 10**6))
def test_every_study_comes_to_its_end_with_exact_numbers(
    plan: SearchPlan, slots: int, deadliness: float, seed: int
) -> None:
    simulation = Simulation(plan, random.Random(seed), deadliness)
    simulation.run(slots)
    rows, whole = list(simulation.rows.values()), plan.budget
    confirmed = min(whole.confirm, whole.trials_per_method) // whole.searches
    for label in plan.labels:
        own = [row for row in rows if row.label == label]
        assert sorted(row.number for row in own if row.phase == "search") == list(range(whole.trials_per_method))
        repeats = whole.searches * confirmed * whole.seeds
        assert sorted(row.number for row in own if row.phase == "confirmation") == list(range(repeats))
        for search in range(whole.searches):
            first = data_seed(7, search) + 1
            per_seed = [sum(row.seed == first + index for row in own) for index in range(whole.seeds)]
            assert per_seed == [confirmed] * whole.seeds
    assert all(row.state in ENDED for row in rows)
    assert any(row.state == "STOPPED" for row in rows) <= (whole.rungs is not None)
    assert {row.id for row in rows if row.state == "FAILED"} == {
        trial for trial, deaths in simulation.deaths.items() if deaths == ATTEMPTS
    }
    assert max(simulation.deaths.values(), default=0) <= ATTEMPTS


@given(
    trials=st.integers(1, 12),
    width=st.sampled_from([1, 3, 16]),
    generation=st.sampled_from([1, 2, 5, 8]),
    slots=st.integers(2, 8),
    seed=st.integers(0, 10**6),
    rule=st.sampled_from([None, *RULES]),
    family=st.booleans(),
    staged=st.booleans(),
)
@example(
    trials=2, width=3, generation=2, slots=2, seed=0, rule="halving", family=False, staged=False
)  # died after a report of a divergence
@example(trials=2, width=3, generation=2, slots=2, seed=0, rule="extrapolation", family=False, staged=False)
def test_neither_workers_nor_interruptions_change_packs_or_what_samplers_learn_from(
    trials: int, width: int, generation: int, slots: int, seed: int, rule: str | None, family: bool, staged: bool
) -> None:
    whole = budget(trials, confirm=3, seeds=2, **({"rungs": {"at": RUNGS, "rule": rule}} if rule else {}))
    plan = SearchPlan(("a", "b", "c"), whole, 7, generation, width, width, RULES[whole.rung_rule]())
    plan = replace(plan, families=(("a", "c"),) if family and rule is None else ())
    plan = replace(plan, stages={"b": [3, 1, 2]} if staged else {})
    runs = [Simulation(plan, random.Random(seed + index), 0.0) for index in range(2)]
    for simulation, workers in zip(runs, (1, slots), strict=True):
        simulation.run(workers)
    assert runs[0].asked == runs[1].asked
    assert runs[0].packs == runs[1].packs
    assert {row.id: row.state for row in runs[0].rows.values()} == {row.id: row.state for row in runs[1].rows.values()}


# ---- a study that is given more


def repeated(label: str, settings: Sequence[int], seeds: int) -> list[Row]:
    """Finished confirmation trials."""
    pairs = [(configuration, index) for configuration in settings for index in range(seeds)]
    return [
        confirmation(label, number, configuration, 1 + index, state="COMPLETE")
        for number, (configuration, index) in enumerate(pairs)
    ]


def test_labels_of_a_family_share_packs_of_a_generation_and_of_confirmation() -> None:
    plan = replace(PLAN, budget=budget(4, confirm=2, seeds=1), families=(("a", "b"),), generation=2, width=4)
    a, b = searched("a", 2), searched("b", 2)
    assert decide(plan, a, {}, slots=2) == [Ask("b", 0, 2)], "waits for the whole family"
    assert decide(plan, [*a, *b], {}, slots=2) == [LaunchPack(("a0", "b0", "a1", "b1"))]
    running = {"p": ("a0", "b0", "a1", "b1")}
    begun = [replace(row, state="RUNNING", pack="p") for row in (*a, *b)]
    assert decide(plan, begun, running, slots=2) == [Ask("a", 2, 2)], "in turns"
    alike = [replace(row, state="COMPLETE") for label in "ab" for row in searched(label, 4)]
    repeats = [replace(row, state="WAITING", id=row.id.replace("c", "r")) for row in repeated("a", (0, 1), 1)]
    assert decide(plan, [*alike[:4], *searched("b", 4), *repeats], {}, slots=1) == [LaunchPack(("b0", "b1"))]
    repeats += [replace(row, state="WAITING", id=row.id.replace("c", "r")) for row in repeated("b", (0, 1), 1)]
    shared = LaunchPack(("a.r0", "b.r0", "a.r1", "b.r1"))
    assert decide(replace(plan, confirmation_width=4), [*alike, *repeats], {}, slots=9) == [shared]
    assert packs(plan) == 2 + 2
    assert packs(replace(plan, families=())) == 4 + 2


def test_a_pack_is_formed_again_in_the_order_of_its_start() -> None:
    steps = [1, 5, 10]
    rows = [
        replace(row, hyperparameters={"local_steps": own}) for row, own in zip(searched("a", 3), steps, strict=True)
    ]
    plan = SearchPlan(labels=("a",), budget=budget(3), width=3)
    (first,) = decide(plan, rows, {}, slots=1)
    (again,) = decide(plan, [replace(row, pack="p") for row in rows], {}, slots=1)
    assert again == replace(first, resume=True) == LaunchPack(("a2", "a1", "a0"), resume=True)


def test_more_settings_are_searched_before_anything_is_repeated_again() -> None:
    plan = replace(PLAN, labels=("a",), budget=budget(6, confirm=2, seeds=2))
    rows = [*searched("a", 4, state="COMPLETE"), *repeated("a", (0, 1), 2)]
    assert decide(plan, rows, {}, slots=1) == [Ask("a", 4, 2)]
    assert decide(replace(plan, budget=PLAN.budget), rows, {}, slots=1) == [Finish()]


@given(
    labels=st.integers(1, 3),
    trials=st.integers(1, 8),
    confirm=st.integers(1, 5),
    seeds=st.integers(0, 2),
    more=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=2),
    deadliness=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 10**6),
)
def test_an_extended_study_comes_to_its_end_with_equal_ledgers(
    labels: int, trials: int, confirm: int, seeds: int, more: list[tuple[int, int]], deadliness: float, seed: int
) -> None:
    whole = budget(trials, confirm=confirm, seeds=seeds)
    plan = SearchPlan(tuple("abc"[:labels]), whole, seed=7, generation=2, width=2, confirmation_width=4)
    simulation = Simulation(plan, random.Random(seed), deadliness)
    simulation.run(2)
    for further_trials, further_seeds in more:
        before = dict(simulation.rows)
        larger = {"trials_per_method": whole.trials_per_method + further_trials, "seeds": whole.seeds + further_seeds}
        whole = whole.model_copy(update=larger)
        plan = replace(plan, budget=whole)
        simulation.plan = plan
        simulation.run(2)
        rows = list(simulation.rows.values())
        assert {name: simulation.rows[name] for name in before} == before, "what was finished is final"
        sizes = set()
        for label in plan.labels:
            own = [row for row in rows if row.label == label and row.phase == "confirmation"]
            search = [row for row in rows if row.label == label and row.phase == "search"]
            assert sorted(row.number for row in search) == list(range(whole.trials_per_method))
            assert sorted(row.number for row in own) == list(range(len(own)))
            pairs = {(row.configuration, row.seed - 8) for row in own}
            again = {configuration for configuration, _ in pairs}
            assert pairs == {(configuration, index) for configuration in again for index in range(whole.seeds)}
            assert len(pairs) == len(own)
            if whole.seeds:
                assert set(simulation.choose(label, 0, whole.confirmed)) <= again
            sizes.add(len(own))
        assert len(sizes) == 1, "labels repeat equally many"


class UnreadRows(TrialRows):
    """Rows of which only the unfinished ones may be read."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all trials were read")


def test_a_decision_without_rungs_reads_unfinished_trials_only() -> None:
    plan = replace(PLAN, labels=("a",), budget=budget(6, confirm=2, seeds=2), generation=2)
    rows = [replace(row, state="COMPLETE", pack="p") for row in searched("a", 2)]
    assert policy.decide(plan, UnreadRows(rows), {}, 1, first_come) == [Ask("a", 2, 2)]
    rows += searched("a", 4)[2:]
    assert policy.decide(plan, UnreadRows(rows), {}, 1, first_come) == [LaunchPack(("a2", "a3"))]
