"""The grid of evaluations, and the share of the work that evaluations take."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers import parse
from trainers.trial.evaluation_rounds import evaluation_grid, evaluation_work, is_evaluated

DIGITS = {"name": "digits", "clients": 10, "partition": "iid"}


@given(st.integers(1, 100_000))
def test_the_grid_follows_its_formula_and_ends_with_the_last_round(rounds):
    grid = sorted(evaluation_grid(rounds))
    assert (grid[0], grid[-1]) == (0, rounds)
    for number, following in pairwise(grid[:-1]):
        assert following == max(number + 1, 21 * number // 20)
    assert grid[-1] <= max(grid[-2] + 1, 21 * grid[-2] // 20)


@given(st.integers(1, 2_000), st.integers(1, 2_000))
def test_a_longer_budget_only_adds_rounds(one, other):
    short, long = sorted([one, other])
    assert evaluation_grid(short) - {short} == {number for number in evaluation_grid(long) if number < short}


def test_a_number_evaluates_at_its_multiples_and_after_the_last_round():
    assert [number for number in range(11) if is_evaluated(number, 10, 4)] == [0, 4, 8, 10]
    assert [number for number in range(44) if is_evaluated(number, 43, "auto")] == [*range(41), 42, 43]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (11 * 359, 10 * 5 * 8 * 3 * 3)),
        ({"eval_every": 4}, (4 * 359, 10 * 5 * 8 * 3 * 3)),
        ({"report": ["full_loss"]}, (11 * (359 + 1438), 10 * 5 * 8 * 3 * 3)),
        ({"task": {**DIGITS, "validation": 0.25}}, (11 * (359 + 360), 10 * 5 * 8 * 3 * 3)),
        ({"members": [{}, {"local_steps": 5}]}, (2 * 11 * 359, 10 * 5 * 8 * (3 + 5) * 3)),
    ],
)
def test_work_counts_examples(changes, expected):
    document = {
        "task": DIGITS,
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 3},
        "clients_per_round": 5,
        "batch_size": 8,
        "rounds": 10,
        **changes,
    }
    assert evaluation_work(parse(document)) == expected


def test_epochs_are_counted_as_steps():
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_epochs": 2}
    document = {"task": DIGITS, "method": method, "clients_per_round": 5, "batch_size": 8, "rounds": 10}
    assert evaluation_work(parse(document))[1] == pytest.approx(10 * 5 * 2 * 143.8 * 3)


def test_closed_forms_cost_nothing_to_evaluate():
    document = {
        "task": {"name": "quadratic", "problem": "two_clients"},
        "method": {"name": "fedsgd", "server_lr": 0.1},
        "rounds": 10,
    }
    assert evaluation_work(parse(document))[0] == 0
