"""The rungs that a study gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.study.rung_rounds import arriving_at, rungs_of


@given(st.integers(1, 10**9))
def test_automatic_rungs_increase_to_the_last_round(rounds):
    found = rungs_of("auto", rounds)
    assert list(found) == sorted(set(found))
    assert found[0] >= 1
    assert found[-1] == rounds
    assert len(found) == min(3, 1 + (rounds >= 3) + (rounds >= 9))


def test_the_last_round_is_a_rung():
    assert rungs_of([25, 75], 200) == rungs_of([25, 75, 200], 200) == (25, 75, 200)


@pytest.mark.parametrize("given", [[], [0, 5], [5, 5], [7, 5], [5, 201], [-1]], ids=str)
def test_rungs_that_do_not_increase_are_refused(given):
    with pytest.raises(InvalidSpec, match=r"^rungs: must be auto or a list of increasing rounds from 1 to rounds=200"):
        rungs_of(given, 200)


def test_there_are_at_most_32_rungs():
    assert len(rungs_of(list(range(1, 33)), 200)) == 33
    with pytest.raises(InvalidSpec, match=r"^rungs: must be at most 32, got 33$"):
        rungs_of(list(range(1, 34)), 200)


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_a_third_rounded_up_arrives_at_the_next_rung(trials, rungs):
    assert arriving_at(rungs, trials) == [-(-trials // 3**rung) for rung in range(rungs)]
