"""Settings that are tried first: given whole or in part, with every sampler, and after a resume."""

import pytest

from search_spaces.parameters import Choice, Float
from service.samplers import build as samplers
from service.samplers.build import NAMES

OBJECTIVES = ("quality", "speed")
SPACE = {
    "client_lr": Float(1e-3, 10, log=True, also=(0,)),
    "local_steps": Choice((1, 5, 10)),
    "server.momentum": Choice((0.0, 0.9)),
}
WHOLE = {"client_lr": 0.0, "local_steps": 5, "server.momentum": 0.9}
START = [WHOLE, {"client_lr": 0.123}, {"server.momentum": 0.0}]


def build(name, space, objectives, seed, **more):
    """A sampler; cmaes gets a space without extra points, and cmaes and staged one objective."""
    if name == "cmaes":
        space = {**space, "client_lr": Float(0, 10)}
    objectives = objectives[:1] if name in ("cmaes", "staged") else objectives
    return samplers.build(name, space, objectives, seed, **more)


def score(setting):
    return {"quality": -setting["client_lr"], "speed": setting["client_lr"] * setting["local_steps"]}


@pytest.mark.parametrize("name", NAMES)
def test_they_come_first_and_what_they_leave_out_is_filled_in(name):
    sampler = build(name, SPACE, OBJECTIVES, 3, start=START)
    found = [sampler.ask(number) for number in range(6)]
    assert found[0] == WHOLE
    assert (found[1]["client_lr"], found[2]["server.momentum"]) == (0.123, 0.0)
    for setting in found:
        assert setting.keys() == SPACE.keys()
        assert all(SPACE[key].contains(value) for key, value in setting.items())
    space = {**SPACE, "client_lr": Float(0, 10)} if name == "cmaes" else SPACE
    if name == "staged":
        first = {"client_lr": 0.0, "local_steps": 1, "server.momentum": 0.0}
        assert found[1:3] == [first | START[1], first | START[2]]
        return
    own = build("quasi_random" if name in ("tpe", "nsga2", "gp", "cmaes") else name, space, OBJECTIVES, 3)
    assert found[1] == own.ask(1) | START[1]
    assert found[2] == own.ask(2) | START[2]
    if name != "grid":
        assert found[3:] == [own.ask(number) for number in range(3, 6)]


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_samplers_learn_from_them(name):
    proposals = []
    for start in ([], [{"client_lr": 9.5, "local_steps": 10}]):
        sampler = build(name, SPACE, OBJECTIVES, 0, start=start)
        for number in range(24):
            setting = sampler.ask(number)
            sampler.tell(number, setting, score(setting))
        proposals.append([sampler.ask(number) for number in range(24, 30)])
    assert proposals[0] != proposals[1]


def test_what_lies_off_the_grid_takes_no_setting_from_it():
    space = {"a": Float(0, 1, points=3)}
    sampler = build("grid", space, OBJECTIVES, 5, start=[{"a": 0.2}])
    found = [sampler.ask(number)["a"] for number in range(4)]
    assert (found[0], sorted(found[1:])) == (0.2, [0.0, 0.5, 1.0])


def test_a_grid_that_is_all_start_begins_again():
    sampler = build("grid", {"a": Choice((1, 2))}, OBJECTIVES, 5, start=[{"a": 1}, {"a": 2}])
    assert [sampler.ask(number)["a"] for number in range(2)] == [1, 2]
    assert sorted(sampler.ask(number)["a"] for number in (2, 3)) == [1, 2]
