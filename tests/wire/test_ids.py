"""Ids of studies and trials, and holders."""

import os

from driftline.wire import ids


def test_study_ids_are_unique_and_sort_by_time():
    made = [ids.new_study_id() for _ in range(100)]
    assert len(set(made)) == 100
    assert all(len(one) == 26 and one == one.lower() and one.isalnum() for one in made)
    assert ids.new_study_id(1000) < ids.new_study_id(1001)
    within = [ids.new_study_id(1001) for _ in range(100)]
    assert within == sorted(set(within)), "in one millisecond"
    assert ids.new_study_id(2**48 - 1, 2**80 - 1) == "7" + "z" * 25


def test_a_trial_id_follows_from_what_it_is():
    assert ids.trial_id("01k6", "Fed-Prox_2", "confirmation", 7) == "01k6.Fed-Prox_2.c00007"
    assert ids.trial_id("01k6", "0", "search", 10**7) == "01k6.0.s10000000"


def test_holder_names_this_process():
    assert ids.holder().endswith(f"/{os.getpid()}")
