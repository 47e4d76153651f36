"""What every sampler must do, and what random, grid and quasi_random are on top."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.errors import InvalidSpec
from driftline.study import sampler as samplers
from search_spaces import spaces
from search_spaces.constraints import Constraint, all_hold
from search_spaces.parameters import Choice, Float, Int
from service.samplers.build import build

OBJECTIVES = ("quality", "speed")
NAMES = list(samplers.registry())
"""Those of installed packages, too."""
SPACE = {
    "client_lr": Float(1e-3, 10, log=True, also=(0,)),
    "local_steps": Choice((1, 5, 10)),
    "gradient_weights": Choice(([1, 1], [0, 1])),
    "prox": Choice((0.5,)),
    "server.momentum": Float(0, 0.99, log=True, complement=True),
    "server.nesterov": Choice((True, False)),
    "schedule.window": Int(5, 50, log=True, also=(1,)),
    "schedule.decay_mode": Choice(("paper", "reference")),
}
CONTINUOUS = {name: SPACE[name] for name in ("local_steps", "server.momentum", "prox")} | {
    "client_lr": Float(1e-3, 10, log=True),
    "schedule.window": Int(5, 50, log=True),
}


def objectives_of(name):
    return OBJECTIVES[:1] if name in ("cmaes", "staged") else OBJECTIVES


def made(name, space=SPACE, seed=7):
    """A sampler; cmaes gets in place of `SPACE` what is continuous in it."""
    if name != "cmaes":
        return build(name, space, objectives_of(name), seed)
    return build(name, {key: CONTINUOUS[key] for key in space if key in CONTINUOUS}, ("quality",), seed)


def score(setting):
    """Values of a setting, or None where it diverges."""
    if setting["client_lr"] > 3:
        return None
    return {"quality": -setting["client_lr"], "speed": setting["client_lr"] * setting["local_steps"]}


def search(sampler, numbers, slots=3):
    """(number, setting) of a search in which `slots` trials run at a time."""
    running, done = [], []
    for number in numbers:
        running.append((number, sampler.ask(number)))
        if len(running) == slots:
            finished, setting = running.pop(0)
            values = score(setting)
            sampler.tell(finished, setting, values, diverged=values is None)
            done.append((finished, setting))
    return done, running


def trials(name, usual):
    """How many trials to search: a proposal of gp takes a second, and the first 10 are not its own."""
    return min(usual, 13) if name == "gp" else usual


@pytest.mark.parametrize("name", NAMES)
def test_proposals_lie_inside_and_do_not_depend_on_the_spaces_order(name):
    turned = dict(reversed(SPACE.items()))
    numbers = range(trials(name, 24))
    done, running = search(made(name), numbers)
    again = search(made(name, turned), numbers)
    assert (done, running) == again
    for _, setting in done + running:
        assert setting.keys() == (CONTINUOUS if name == "cmaes" else SPACE).keys()
        assert all(SPACE[key].contains(value) for key, value in setting.items())
        assert type(setting["local_steps"]) is int
        assert type(setting.get("server.nesterov", True)) is bool


@pytest.mark.parametrize("name", NAMES)
def test_a_rebuilt_sampler_goes_on_as_the_interrupted_one_would(name):
    sampler = made(name)
    end = trials(name, 18)
    done, running = search(sampler, range(end))
    shuffled = [(*row, True) for row in done] + [(*row, False) for row in running]
    random.Random(0).shuffle(shuffled)
    rebuilt = made(name)
    for number, setting, finished in shuffled:
        if finished:
            values = score(setting)
            rebuilt.tell(number, setting, values, diverged=values is None)
        else:
            rebuilt.pending(number, setting)
    ahead = range(end, end + 1 if name == "gp" else end + 3)
    assert [rebuilt.ask(number) for number in ahead] == [sampler.ask(number) for number in ahead]


@pytest.mark.parametrize("name", ["random", "grid", "quasi_random"])
def test_proposals_depend_on_seed_and_number_alone(name):
    forward = [build(name, SPACE, OBJECTIVES, 1).ask(number) for number in range(12)]
    one = build(name, SPACE, OBJECTIVES, 1)
    assert [one.ask(number) for number in reversed(range(12))] == forward[::-1]
    assert [build(name, SPACE, OBJECTIVES, 2).ask(number) for number in range(12)] != forward


@pytest.mark.parametrize("name", NAMES)
def test_a_space_with_nothing_to_try(name):
    objectives = OBJECTIVES[:1]
    sampler = build(name, {"client_lr": Choice((0.1,))}, objectives, 0)
    assert [sampler.ask(number) for number in range(20)] == [{"client_lr": 0.1}] * 20
    assert build(name, {}, objectives, 0).ask(0) == {}


def test_unknown_sampler():
    with pytest.raises(InvalidSpec, match=r'^sampler: no sampler "tpee": did you mean tpe\?$'):
        build("tpee", SPACE, OBJECTIVES, 0)
    with pytest.raises(InvalidSpec, match=r"^sampler\.startp: unknown key: did you mean startup\?$"):
        build({"name": "tpe", "startp": 3}, SPACE, OBJECTIVES, 0)
    with pytest.raises(InvalidSpec, match=r"^sampler\.startp: .*\nsampler\.startup: must be at least 1"):
        build({"name": "tpe", "startp": 3, "startup": 0}, SPACE, OBJECTIVES, 0)


def test_settings_of_a_sampler_reach_it():
    """TPE begins, and a generation ends, where the settings say: until then proposals are quasi-random."""
    for sampler, first in [
        ("tpe", 10),
        ({"name": "tpe", "startup": 4}, 4),
        ("nsga2", 8),
        ({"name": "nsga2", "population_size": 4}, 4),
    ]:
        made, points = build(sampler, SPACE, OBJECTIVES, 7), build("quasi_random", SPACE, OBJECTIVES, 7)
        found = [setting for _, setting in search(made, range(12), slots=1)[0]]
        assert next(number for number in range(12) if found[number] != points.ask(number)) == first


def test_grid_holds_every_combination_once_and_then_repeats():
    space = {"a": Choice((1, 2, 3)), "b": Float(0, 1, points=2), "c": Choice(("x",))}
    sampler = build("grid", space, OBJECTIVES, 3)
    drawn = [tuple(sampler.ask(number).values()) for number in range(12)]
    assert sorted(drawn[:6]) == sorted(itertools.product((1, 2, 3), (0.0, 1.0), ("x",)))
    assert drawn[6:] == drawn[:6]


def test_a_grid_that_is_too_large_is_refused():
    with pytest.raises(InvalidSpec, match="at most 1000000 configurations, got 10000000000"):
        build("grid", {str(index): Choice(tuple(range(10))) for index in range(10)}, OBJECTIVES, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31))
def test_quasi_random_fills_every_cell(seed):
    sampler = build("quasi_random", {"a": Float(0, 1), "b": Float(0, 1)}, OBJECTIVES, seed)
    points = np.array([list(sampler.ask(number).values()) for number in range(16)])
    for column in points.T:
        assert sorted((column * 16).astype(int)) == list(range(16))
    assert len({tuple(cell) for cell in (points * 4).astype(int)}) == 16


def test_random_draws_are_spread_evenly():
    sampler = build("random", {"a": Float(0, 1), "b": Choice((0, 1))}, OBJECTIVES, 0)
    drawn = [sampler.ask(number) for number in range(2000)]
    counts = np.histogram([setting["a"] for setting in drawn], bins=10, range=(0, 1))[0]
    assert counts.min() > 150
    assert sum(setting["b"] for setting in drawn) == pytest.approx(1000, abs=100)
    assert abs(np.corrcoef([[s["a"], s["b"]] for s in drawn], rowvar=False)[0, 1]) < 0.1


def test_default_spaces_suit_every_sampler():
    for name in spaces.names("methods"):
        space = spaces.default("methods", name)
        for kind in set(NAMES) - {"cmaes"}:
            setting = build(kind, space, objectives_of(kind), 0).ask(0)
            assert all(space[key].contains(value) for key, value in setting.items())


FINITE = {"a": Choice((1, 2, 3)), "b": Int(1, 4, also=(9,)), "c": Choice((0.5,))}
"""15 configurations."""


@pytest.mark.parametrize("rows", ["plain", "start", "constraint"])
@pytest.mark.parametrize("name", samplers.NAMES)  # samplers of other packages may repeat configurations
def test_no_configuration_comes_twice_while_there_are_others(name, rows):
    """In generations of 4 whose results are told two generations later, until the whole space has been tried."""
    space = {key: Int(1, 5) if key == "b" and name == "cmaes" else FINITE[key] for key in FINITE}
    start = [{"a": 2, "b": 3, "c": 0.5}, {"a": 1}] if rows == "start" else []
    constraints = [Constraint("a + b <= 5")] if rows == "constraint" else []
    count = 15 if rows != "constraint" else sum(a + b <= 5 for a in (1, 2, 3) for b in space["b"].grid(9))
    objectives = OBJECTIVES[:1] if name == "gp" else objectives_of(name)
    sampler = build(name, space, objectives, 11, start=start, constraints=constraints)
    tried = []
    while len(tried) < count:
        for number in range(max(0, len(tried) - 8), max(0, len(tried) - 4)):
            sampler.tell(number, tried[number], {"quality": -tried[number]["b"], "speed": tried[number]["a"]})
        first = len(tried)
        tried += [sampler.ask(number) for number in range(first, min(first + 4, count))]
    assert len({(each["a"], each["b"]) for each in tried}) == count
    again = sampler.ask(count)  # afterwards they come again
    assert all(space[key].contains(value) for each in [*tried, again] for key, value in each.items())
    assert all(all_hold(constraints, each) for each in [*tried, again])
