"""The constraints key of a study: its form, its errors, and what `check` refuses."""

import json

import pytest

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from tests.driver.store_client import quadratic

SPACE = {
    "client_lr": {"float": [0.01, 1.0], "points": 3},
    "server_lr": 1.0,
    "local_steps": {"choice": [1, 10]},
    "weight_decay": {"choice": [0, 0.1]},
}


def constrained(constraints, sampler="tpe", trials=2, **entry) -> Study:
    method = {"name": "fedavg", "space": SPACE, "constraints": constraints, **entry}
    budget = {"trials_per_method": trials, "rounds": 2, "seeds": 0}
    return quadratic(methods=[method], budget=budget, sampler=sampler)


def test_constraints_are_kept_and_change_the_fingerprint_only_where_given():
    study = constrained(["client_lr * local_steps <= 2"])
    document = study.to_json()
    assert document["methods"][0]["constraints"] == ["client_lr * local_steps <= 2"]
    assert Study.from_json(json.loads(json.dumps(document))) == study
    free = constrained([]).to_json()
    del document["methods"][0]["constraints"]
    assert free == document
    assert Study.from_json(free).fingerprint() != study.fingerprint()


@pytest.mark.parametrize(
    ("constraints", "error"),
    [
        (["client_lr <= 1", "client_lr < 1"], r"methods\[0\]\.constraints\[1\]: must be one comparison "),
        (["momentum <= 1"], r'methods\[0\]\.constraints\[0\]: "momentum" is not in the entry\'s search space: '),
        ([7], r"methods\[0\]\.constraints\[0\]: must be a string such as client_lr \* local_steps <= 2, got 7$"),
        ("client_lr <= 1", r"methods\[0\]\.constraints: must be a list"),
        (["client_lr <= 1"] * 21, r"methods\[0\]\.constraints: must have fewer items"),
    ],
    ids=["form", "name", "kind", "no list", "too many"],
)
def test_errors_name_the_key(constraints, error):
    with pytest.raises(InvalidSpec, match=f"^{error}"):
        constrained(constraints)


def test_starting_points_that_break_a_constraint_are_refused():
    constraints = ["client_lr * local_steps <= server_lr"]
    constrained(constraints, start=[{"client_lr": 0.1, "local_steps": 10}, {"client_lr": 0.5}]).check()
    with pytest.raises(InvalidSpec) as error:
        constrained(constraints, start=[{"local_steps": 1}, {"client_lr": 0.2, "local_steps": 10}])
    text = "methods[0].start[1]: must satisfy client_lr * local_steps <= server_lr, got client_lr=0.2, local_steps=10"
    assert str(error.value) == text
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.start\[0\]: must leave at least 1 % of what the point"):
        constrained(["client_lr * local_steps <= 0.5"], start=[{"client_lr": 0.6}]).check()


def test_check_refuses_a_space_of_which_next_to_nothing_is_left():
    with pytest.raises(InvalidSpec, match=r"constraints: must leave at least 1 % of the space, got nothing"):
        constrained(["client_lr >= 2"]).check()
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.constraints: .* got about 0\.\d+ %: allow more$"):
        constrained(["client_lr >= 0.995"]).check()


def test_a_grid_counts_what_its_constraints_leave():
    assert constrained(["client_lr * local_steps <= 2"], "grid", trials=8).check() == []
    with pytest.raises(InvalidSpec, match="must be at most 8, the configurations on the grid"):
        constrained(["client_lr * local_steps <= 2"], "grid", trials=9).check()
    huge = {**SPACE, "client_lr": {"float": [0, 1], "points": 90_000}, "weight_decay": {"float": [0, 1], "points": 90}}
    with pytest.raises(InvalidSpec, match="space: must have at most 1000000 configurations on its"):
        constrained(["client_lr <= weight_decay"], "grid", space=huge).check()


def test_the_outlook_says_what_is_left():
    assert "Constraints of fedavg leave about 50 % of its space." in constrained(["local_steps <= 5"], "grid").outlook()
    assert not any("Constraints" in line for line in constrained([]).outlook())
