"""Constraints between hyperparameters: what can be written, what holds, and how much of a space is left."""

import numpy as np
import pytest

from search_spaces.constraints import Constraint, allowed_on_grid, allowed_share
from search_spaces.parameters import Choice, Float, Int
from trainers import REPORTED, SpecError

SPACE = {"client_lr": Float(0.01, 1, points=3), "local_steps": Choice((1, 10)), "schedule.window": Int(5, 50)}


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("client_lr * local_steps <= 2", {"client_lr": 0.2, "local_steps": 10}, True),
        ("client_lr * local_steps <= 2", {"client_lr": 0.21, "local_steps": 10}, False),
        ("client_lr * 3 <= 0.3", {"client_lr": 0.1}, True),  # 0.30000000000000004
        ("client_lr >= 0.5 / local_steps", {"client_lr": 0.1, "local_steps": 5}, True),
        ("client_lr >= 0.5 / local_steps", {"client_lr": 0.1, "local_steps": 4}, False),
        ("-(server.momentum - 1) >= 1e-1", {"server.momentum": 0.95}, False),
        ("1 - client.beta1 + server.momentum <= 1", {"client.beta1": 0.9, "server.momentum": 0.9}, True),
        ("1 / client_lr >= 1", {"client_lr": 0.0}, False),  # not finite
    ],
)
def test_what_holds(text, values, holds):
    constraint = Constraint(text)
    assert constraint.names == tuple(sorted(values))
    assert bool(constraint.holds(values)) is holds
    arrays = {name: np.array([value, value]) for name, value in values.items()}
    assert constraint.holds(arrays).tolist() == [holds, holds]


@pytest.mark.parametrize(
    "text",
    [
        "client_lr", "client_lr < 1", "client_lr == 1", "0 <= client_lr <= 1", "client_lr <= 1 <= 2", "client_lr <=",
        "client_lr ** 2 <= 1", "client_lr % 2 <= 1", "client_lr // 2 <= 1", "exp(client_lr) <= 1", "client_lr[0] <= 1",
        "client_lr <= 'a'", "client_lr <= True", "client_lr <= 1j", "client_lr <= 1e999", "client_lr <= b'1'",
        "(lambda: 1) <= client_lr", "f().x <= client_lr", "not client_lr <= 1", "client_lr <= 1 and client_lr >= 0",
        "client_lr <= (x := 2)", "client_lr <= \0", "(" * 90 + "client_lr" + ")" * 89 + " <= 1", "",
    ],
)  # fmt: skip
def test_nothing_else_can_be_written(text):
    with pytest.raises(SpecError, match=r"^must be one comparison"):
        Constraint(text)


@pytest.mark.parametrize("text", ["{} <= 1e9", "{} <= 1GB", "local_steps * {} <= 9"])
@pytest.mark.parametrize("cost", REPORTED)
def test_a_cost_is_refused_with_what_to_do_instead(cost, text):
    with pytest.raises(SpecError, match=rf"and {cost} is a cost: .*read the result within a limit \(--cost {cost}\)$"):
        Constraint(text.format(cost)).check(SPACE)
    Constraint(f"{cost} <= 9").check({cost: Int(1, 50)})  # a method's own hyperparameter of this name


def test_form_and_length():
    with pytest.raises(SpecError, match=r"must be a string such as client_lr .*, got 3$"):
        Constraint(3)
    with pytest.raises(SpecError, match=r"at most 200 characters, got 202$"):
        Constraint("client_lr <= 1" + " " * 188)
    with pytest.raises(SpecError, match=r'at least one hyperparameter, got "1 <= 2"$'):
        Constraint("1 <= 2")


def test_names_and_kinds_are_checked():
    Constraint("client_lr * schedule.window <= local_steps").check(SPACE)
    with pytest.raises(SpecError, match=r'"client_rl" is not in the entry\'s search space: did you mean client_lr\?$'):
        Constraint("client_rl <= 1").check(SPACE)
    with pytest.raises(SpecError, match=r"mode must have numbers only, got true in its space$"):
        Constraint("mode <= 1").check({"mode": Choice((1, True))})


def test_the_share_that_is_left():
    assert allowed_share(SPACE, []) == allowed_on_grid(SPACE, []) == 1
    half = [Constraint("local_steps <= 5")]
    assert allowed_share(SPACE, half) == pytest.approx(0.5, abs=0.03)
    assert allowed_on_grid(SPACE, half) == 0.5
    both = [*half, Constraint("client_lr <= 0.505")]
    assert allowed_share(SPACE, both) == pytest.approx(0.25, abs=0.03)
    assert allowed_on_grid(SPACE, both) == pytest.approx(2 / 6)
    assert allowed_share(SPACE, [Constraint("client_lr >= 2")]) == 0
