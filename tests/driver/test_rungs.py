"""Rungs: who continues, as a function of the trial list alone."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from service.driver.search.rungs import Climb, Goal, Halving, ends, goals

RUNGS = 3
PLACES = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (float(pair[0]), float(pair[1])))
"""Values of a trial; few different ones, so that ties are common."""


@st.composite
def searches(draw, least=1):
    """All trials of a search as if each had been trained to its end: some diverge before some rung."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=least, max_size=4))
    climbs = []
    for generation, size in enumerate(sizes):
        for _ in range(size):
            reached = draw(st.sampled_from((0, 1, 2, *[RUNGS] * 6)))
            values = tuple(draw(PLACES) for _ in range(reached))
            climbs.append(Climb(len(climbs), generation, values, ended=reached < RUNGS))
    return climbs


def promoted(climbs, rung):
    """The numbers of the trials that continue beyond a rung."""
    return {number for number, goal in goals(Halving(), RUNGS, climbs).items() if goal.rung > rung}


def at(climbs, rung, generation=None):
    """The trials that train until a rung: all, or those of a generation."""
    there = promoted(climbs, rung - 1) if rung else {climb.number for climb in climbs}
    return [one for one in climbs if one.number in there and generation in (None, one.generation)]


def finite(climbs, rung, last):
    """Values at a rung of the trials of generations up to the last one that train until there and did not diverge."""
    there = [climb for climb in at(climbs, rung) if climb.generation <= last and len(climb.values) > rung]
    return {climb.number: climb.values[rung] for climb in there}


@given(searches())
def test_the_ends_of_the_pareto_set_always_continue(climbs):
    for rung in range(RUNGS - 1):
        for generation in {climb.generation for climb in climbs}:
            values = finite(climbs, rung, generation)
            own = {climb.number for climb in at(climbs, rung, generation)}
            for objective in range(2):
                best = max(values.items(), key=lambda one: (one[1][objective], one[1], -one[0]), default=(None,))[0]
                assert best not in own or best in promoted(climbs, rung)


@given(searches())
def test_a_share_of_each_generation_continues_and_no_diverged_trial(climbs):
    for rung in range(RUNGS - 1):
        for generation in {climb.generation for climb in climbs}:
            own = at(climbs, rung, generation)
            there = {climb.number for climb in own if len(climb.values) > rung}
            more = {climb.number for climb in own} & promoted(climbs, rung)
            share = min(-(-len(own) // 3), len(there))
            assert more <= there
            assert share <= len(more) <= max(share, 2)
            values = finite(climbs, rung, generation)
            extreme = {list(values)[index] for index in ends(list(values.values()))} & there
            assert len(more) == share or more == extreme


@settings(max_examples=40)
@given(searches(), st.randoms(use_true_random=False), st.data())
def test_the_order_of_arrivals_changes_nothing_and_no_decision_changes(climbs, random, data):
    """Trials train rung by rung in any order, each until its goal; goals only move up, to the final ones."""
    final = goals(Halving(), RUNGS, climbs)
    seen = {climb.number: replace(climb, values=(), ended=False) for climb in climbs}
    now = goals(Halving(), RUNGS, seen.values())
    while True:
        open_ = [
            number
            for number, goal in now.items()
            if not goal.stopped and not seen[number].ended and len(seen[number].values) <= goal.rung
        ]
        if not open_:
            break
        number = data.draw(st.sampled_from(open_))
        whole, values = climbs[number], seen[number].values
        more = whole.values[: len(values) + 1]
        seen[number] = replace(whole, values=more, ended=more == values)
        shuffled = list(seen.values())
        random.shuffle(shuffled)
        before, now = now, goals(Halving(), RUNGS, shuffled)
        for one, goal in before.items():
            assert now[one] == goal or (not goal.stopped and now[one] in (Goal(goal.rung, True), Goal(goal.rung + 1)))
    assert now == final


@given(searches(least=2))
def test_later_generations_change_no_decision(climbs):
    last = max(climb.generation for climb in climbs)
    earlier = [climb for climb in climbs if climb.generation < last]
    whole = goals(Halving(), RUNGS, climbs)
    assert goals(Halving(), RUNGS, earlier) == {climb.number: whole[climb.number] for climb in earlier}


def test_a_better_trial_in_an_earlier_generation_takes_the_place_at_the_end():
    first = [Climb(number, 0, ((4.0, 4.0),) * RUNGS) for number in range(3)]
    second = [Climb(3 + number, 1, ((float(number), float(number)),) * RUNGS) for number in range(4)]
    assert promoted([*first, *second], 0) == {0, 5, 6}


def test_equal_trials_continue_by_number():
    climbs = [Climb(number, 0, ((1.0, 1.0),) * RUNGS) for number in range(9)]
    assert promoted(climbs, 0) == {0, 1, 2}
    assert promoted(climbs, 1) == {0}


def test_one_objective_is_enough():
    climbs = [Climb(number, 0, ((float(number),),) * RUNGS) for number in range(9)]
    assert promoted(climbs, 0) == {6, 7, 8}
    assert promoted(climbs, 1) == {8}
