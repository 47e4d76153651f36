"""What the rules at rungs prefer; what all of them must do is in `test_rungs.py`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.driver.search.forecast import Prospect
from service.driver.search.rules import RULES, Arrival, Extrapolation, Forecast, Halving
from tests.driver.test_rungs import PLACES, every_rule, prospects

COSTS = (1.0, 10.0, 100.0)


def arrival(values, end, spread=0.1, start=0.0):
    """A trial that has reached merit 0.5 at cost 10, and is expected to reach `end` at cost 100."""
    return Arrival(values, Prospect(COSTS, (0.2, 0.5, end), (0.0, 0.0, spread), start))


@every_rule
@given(st.lists(st.tuples(PLACES, prospects()), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_decision_does_not_depend_on_the_order_of_trials(rule, given_, random):
    arrived = {number: Arrival(values, view) for number, (values, view) in enumerate(given_)}
    own = list(arrived)
    found = rule.promoted(arrived, own)
    items = list(arrived.items())
    random.shuffle(items)
    random.shuffle(own)
    assert type(rule)().promoted(dict(items), own) == found


@every_rule
def test_diverged_trials_never_continue_even_alone(rule):
    assert rule.promoted({0: None, 1: None}, [0, 1]) == set()


def test_a_rule_has_a_name():
    assert {"halving": Halving, "extrapolation": Extrapolation, "forecast": Forecast} == RULES


def test_extrapolation_continues_what_may_end_best_though_it_is_no_better_yet():
    """Trial 0 is both ends of the Pareto set; of the others, only trial 2 is expected to change the frontier."""
    arrived = {0: arrival((3.0, 3.0), 0.6), 1: arrival((2.0, 2.0), 0.5), 2: arrival((1.0, 1.0), 1.0)}
    arrived |= {3: arrival((2.5, 2.5), 0.5)}
    assert Extrapolation().promoted(arrived, [0, 1, 2, 3]) == {0, 2}
    assert Halving().promoted(arrived, [0, 1, 2, 3]) == {0, 3}


def test_forecast_gives_two_places_of_three_to_what_may_end_best():
    rising = {number: arrival((float(number), float(number)), 1 - number / 8) for number in range(8)}
    assert Forecast().promoted(rising, list(rising)) == {7, 0, 1}, "the end of the Pareto set, then by forecast"
    more = rising | {8: arrival((9.0, 9.0), 0.5)}
    assert Forecast().promoted(more, list(rising)) == {0, 1, 7}, "the end is of an earlier generation: the best by rank"


def test_what_is_less_certain_continues():
    sure = {0: arrival((3.0, 3.0), 1.0), 1: arrival((1.0, 1.0), 0.9, spread=0.01), 2: arrival((1.0, 1.0), 0.5)}
    unsure = sure | {1: arrival((1.0, 1.0), 0.9, spread=0.4)}
    assert Extrapolation().promoted(sure, [0, 1, 2]) == {0}
    assert Extrapolation().promoted(unsure, [0, 1, 2]) == {0, 1}


def test_nothing_but_the_ends_continues_where_nothing_promises_anything():
    flat = {number: arrival((float(number), float(number)), 0.5, spread=0.0) for number in range(8)}
    assert Extrapolation().promoted(flat, list(flat)) == {7}
    assert Extrapolation().promoted(flat, [0, 1, 2]) == set(), "the end is of an earlier generation"


def test_at_most_half_continues():
    promising = {number: arrival((float(number), float(number)), 1.0 + number / 8, spread=2.0) for number in range(8)}
    assert Extrapolation().promoted(promising, list(promising)) == {4, 5, 6, 7}


@pytest.mark.parametrize("mixed", [False, True])
def test_scales_of_losses_are_not_mixed(mixed):
    """A loss that falls below 0 is linear, and then all are."""
    falling = Arrival((1.0, 1.0), Prospect(COSTS, (-1.0, -0.5, -0.01), (0.0, 0.0, 0.0), -1.0, logarithmic=False))
    best = Arrival((2.0, 2.0), Prospect(COSTS, (0.1, 0.3, 2.0), (0.0, 0.0, 0.1), 0.0, logarithmic=True))
    arrived = {0: best, 1: falling if mixed else best, 2: best}
    assert 0 in Extrapolation().promoted(arrived, [0, 1, 2])
