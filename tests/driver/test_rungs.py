"""Rungs: who continues, as a function of the trial list alone. Every rule keeps the same contract."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.driver.search.forecast import Prospect
from service.driver.search.rules import RULES, Arrival, Extrapolation, Halving, ends
from service.driver.search.rungs import Climb, Goal, goals

RUNGS = 3
every_rule = pytest.mark.parametrize("rule", [rule() for rule in RULES.values()], ids=list(RULES))
PLACES = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (float(pair[0]), float(pair[1])))
"""Values of a trial; few different ones, so that ties are common."""


@st.composite
def prospects(draw):
    """Prospects of trials at different costs; few different ones."""
    cost, best, spread = draw(st.sampled_from((1.0, 3.0))), draw(st.integers(0, 3)), draw(st.sampled_from((0.0, 0.5)))
    merits = (float(min(best, 1)), float(best), float(best))
    return Prospect((cost, 3 * cost, 9 * cost), merits, (0.0, 0.0, spread), 0.0, draw(st.booleans()))


@st.composite
def searches(draw, least=1):
    """All trials of a search as if each had been trained to its end: some diverge before some rung."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=least, max_size=3))
    climbs = []
    for generation, size in enumerate(sizes):
        for _ in range(size):
            reached = draw(st.sampled_from((0, 1, 2, *[RUNGS] * 6)))
            arrivals = tuple(Arrival(draw(PLACES), draw(prospects())) for _ in range(reached))
            climbs.append(Climb(len(climbs), generation, arrivals, ended=reached < RUNGS))
    return climbs


def alike(number, generation, *values):
    """A trial that has the same values at every rung."""
    return Climb(number, generation, (Arrival(values),) * RUNGS)


def promoted(rule, climbs, rung):
    """The numbers of the trials that continue beyond a rung."""
    return {number for number, goal in goals(rule, RUNGS, climbs).items() if goal.rung > rung}


def at(rule, climbs, rung, generation=None):
    """The trials that train until a rung: all, or those of a generation."""
    there = promoted(rule, climbs, rung - 1) if rung else {climb.number for climb in climbs}
    return [one for one in climbs if one.number in there and generation in (None, one.generation)]


def finite(rule, climbs, rung, last):
    """Values at a rung of the trials of generations up to the last one that train until there and did not diverge."""
    there = [climb for climb in at(rule, climbs, rung) if climb.generation <= last and len(climb.arrivals) > rung]
    return {climb.number: climb.arrivals[rung].values for climb in there}


@every_rule
@given(searches())
def test_the_ends_of_the_pareto_set_always_continue(rule, climbs):
    for rung in range(RUNGS - 1):
        for generation in {climb.generation for climb in climbs}:
            values = finite(rule, climbs, rung, generation)
            own = {climb.number for climb in at(rule, climbs, rung, generation)}
            for objective in range(2):
                best = max(values.items(), key=lambda one: (one[1][objective], one[1], -one[0]), default=(None,))[0]
                assert best not in own or best in promoted(rule, climbs, rung)


@every_rule
@given(searches())
def test_at_most_a_share_of_each_generation_continues_and_no_diverged_trial(rule, climbs):
    most = 2 if isinstance(rule, Extrapolation) else 3
    for rung in range(RUNGS - 1):
        for generation in {climb.generation for climb in climbs}:
            own = at(rule, climbs, rung, generation)
            there = {climb.number for climb in own if len(climb.arrivals) > rung}
            more = {climb.number for climb in own} & promoted(rule, climbs, rung)
            values = finite(rule, climbs, rung, generation)
            extreme = {list(values)[index] for index in ends(list(values.values()))} & there
            share = -(-len(own) // most)
            assert extreme <= more <= there
            assert len(more) <= max(share, len(extreme))
            assert isinstance(rule, Extrapolation) or len(more) >= min(share, len(there)), "halving fills its share"


@every_rule
@pytest.mark.parametrize("together", [True, False], ids=["generations", "asynchronous"])
@given(searches(), st.randoms(use_true_random=False), st.data())
def test_no_decision_changes_and_in_generations_the_order_of_arrivals_changes_none(
    rule, together, climbs, random, data
):
    """Trials train rung by rung in any order, each until its goal; goals only move up, to the final ones."""
    final = goals(rule, RUNGS, climbs)
    seen = {climb.number: replace(climb, arrivals=(), ended=False) for climb in climbs}
    now = goals(rule, RUNGS, seen.values(), together)
    while True:
        open_ = [
            number
            for number, goal in now.items()
            if not goal.stopped and not seen[number].ended and len(seen[number].arrivals) <= goal.rung
        ]
        if not open_:
            break
        number = data.draw(st.sampled_from(open_))
        whole, arrivals = climbs[number], seen[number].arrivals
        more = whole.arrivals[: len(arrivals) + 1]
        seen[number] = replace(whole, arrivals=more, ended=more == arrivals)
        if not together:  # the driver acts at once
            seen = {one: replace(climb, **acted(now[one], climb)) for one, climb in seen.items()}
        shuffled = list(seen.values())
        random.shuffle(shuffled)
        before, now = now, goals(rule, RUNGS, shuffled, together)
        for one, goal in before.items():
            assert now[one] == goal or (not goal.stopped and now[one] in (Goal(goal.rung, True), Goal(goal.rung + 1)))
    assert not together or now == final
    for number, goal in now.items():
        assert goal.stopped or seen[number].ended or len(seen[number].arrivals) == RUNGS, "nobody waits for ever"


def acted(goal, climb):
    """What the driver has made of a goal: it has stopped the trial, or begun to train it further."""
    return {"stopped": goal.stopped, "passed": goal.rung}


@every_rule
@given(searches(least=2))
def test_later_generations_change_no_decision(rule, climbs):
    last = max(climb.generation for climb in climbs)
    earlier = [climb for climb in climbs if climb.generation < last]
    whole = goals(rule, RUNGS, climbs)
    assert goals(rule, RUNGS, earlier) == {climb.number: whole[climb.number] for climb in earlier}


def test_a_trial_is_compared_with_those_that_have_arrived_so_far():
    first, second, third = (alike(number, 0, float(number), float(number)) for number in range(3))
    waiting = [replace(second, arrivals=()), replace(third, arrivals=())]
    assert goals(Halving(), RUNGS, [first, *waiting])[0] == Goal(0), "it waits for its generation"
    assert goals(Halving(), RUNGS, [first, *waiting], together=False)[0].rung > 0
    assert goals(Halving(), RUNGS, [first, second, third], together=False)[0] == Goal(0, stopped=True)


def test_a_better_trial_in_an_earlier_generation_takes_the_place_at_the_end():
    first = [alike(number, 0, 4.0, 4.0) for number in range(3)]
    second = [alike(3 + number, 1, float(number), float(number)) for number in range(4)]
    assert promoted(Halving(), [*first, *second], 0) == {0, 5, 6}


def test_equal_trials_continue_by_number():
    climbs = [alike(number, 0, 1.0, 1.0) for number in range(9)]
    assert promoted(Halving(), climbs, 0) == {0, 1, 2}
    assert promoted(Halving(), climbs, 1) == {0}
    assert goals(Halving(), RUNGS, climbs)[0] == Goal(RUNGS - 1), "nothing is decided at the last rung"


def test_a_trial_that_is_ahead_waits_for_one_of_its_generation_that_is_tried_again():
    ahead, again = Climb(0, 0, (Arrival((1.0,)),) * 2, passed=1), Climb(1, 0)
    assert goals(Halving(), RUNGS, [ahead, again]) == {0: Goal(1), 1: Goal(0)}


def test_one_objective_is_enough():
    climbs = [alike(number, 0, float(number)) for number in range(9)]
    assert promoted(Halving(), climbs, 0) == {6, 7, 8}
    assert promoted(Halving(), climbs, 1) == {8}
