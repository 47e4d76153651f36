"""Ids of studies and trials, and holders."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.errors import NotFound
from driftline.wire import ids


def test_study_ids_are_unique_and_sort_by_time():
    made = [ids.new_study_id() for _ in range(100)]
    assert len(set(made)) == 100
    assert all(len(one) == 26 and one == one.lower() and one.isalnum() for one in made)
    assert ids.new_study_id(1000) < ids.new_study_id(1001)
    assert ids.new_study_id(2**48 - 1, 2**80 - 1) == "7" + "z" * 25


@given(
    st.sampled_from(["search", "confirmation"]), st.integers(0, 10**7), st.sampled_from(["fedavg", "Fed-Prox_2", "0"])
)
def test_trial_ids_can_be_read_back(phase, number, label):
    study = ids.new_study_id(5, 7)
    text = ids.trial_id(study, label, phase, number)
    assert ids.parse_trial_id(text) == (study, label, phase, number)


@pytest.mark.parametrize("text", ["", "a.b", "a.b.x00001", "a.b.s1", "a.b.c.s00001", "a..s00001"])
def test_other_text_is_no_trial_id(text):
    with pytest.raises(NotFound, match="looks like"):
        ids.parse_trial_id(text)


def test_holder_names_this_process():
    assert ids.holder().endswith(f"/{os.getpid()}")
