"""The TPE sampler: better than chance, shy of what diverges, quiet, and one proposal at a time."""

import math
import subprocess
import sys

import numpy as np
import pytest

from search_spaces.parameters import Choice, Float
from service.samplers.build import build

SPACE = {
    "client_lr": Float(1e-4, 10, log=True, also=(0,)),
    "server_lr": Float(1e-4, 10, log=True),
    "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    "server.momentum": Float(0, 0.99, log=True, complement=True),
}


def smooth(setting):
    """Two objectives in [0, 1] whose trade-off is client_lr; the other three have one best value."""
    rate = (math.log10(setting["client_lr"] or 1e-4) + 4) / 5
    off = abs(math.log10(setting["server_lr"]) + 2) / 3 + abs(math.log2(setting["local_steps"]) - 3) / 5
    off += abs(math.log10(1 - setting["server.momentum"]) + 1) / 2
    return {"quality": max(0.0, 1 - rate**2 - off), "speed": max(0.0, 1 - (1 - rate) ** 2 - off)}


def hypervolume(points):
    """Area under the non-dominated points, from (0, 0)."""
    area, height = 0.0, 0.0
    for x, y in sorted(points, reverse=True):
        if y > height:
            area, height = area + x * (y - height), y
    return area


def search(name, seed, function, trials=64, slots=4, objectives=("quality", "speed")):
    """(setting, values) of a search in which several trials run at a time."""
    sampler = build(name, SPACE, objectives, seed)
    running, done = [], []
    for number in range(trials + slots):
        if number < trials:
            running.append((number, sampler.ask(number)))
        if len(running) == slots or number >= trials:
            finished, setting = running.pop(0)
            values = function(setting)
            sampler.tell(finished, setting, values, diverged=values is None)
            done.append((setting, values))
            if not running:
                break
    return done


def test_hypervolume_is_larger_than_that_of_random_search():
    mean = {
        name: np.mean([hypervolume([tuple(v.values()) for _, v in search(name, seed, smooth)]) for seed in range(3)])
        for name in ("tpe", "random")
    }
    assert mean["tpe"] > 1.3 * mean["random"]


@pytest.mark.parametrize("objective", ["quality", "speed"])
def test_one_objective(objective):
    def best(name, seed):
        return max(values[objective] for _, values in search(name, seed, smooth, objectives=(objective,)))

    assert (
        np.mean([best("tpe", seed) for seed in range(3)]) > np.mean([best("random", seed) for seed in range(3)]) + 0.1
    )


def test_neither_the_range_nor_its_extra_point_is_given_up():
    """client_lr 0 is best for quality and worst for speed: a frontier needs it, and the range."""

    def exact_at_0(setting):
        values = smooth(setting)
        return {**values, "quality": values["quality"] + (setting["client_lr"] == 0)}

    late = [[setting["client_lr"] == 0 for setting, _ in search("tpe", seed, exact_at_0)[32:]] for seed in range(4)]
    shares = [float(np.mean(one)) for one in late]
    assert all(0.2 < share < 0.8 for share in shares), shares


@pytest.mark.parametrize("seed", range(3))
def test_an_extra_point_that_does_well_leaves_half_of_the_search_to_the_range(seed):
    def best_at_zero(setting):
        rate = setting["client_lr"]
        return {"quality": 1.0 if rate == 0 else 0.9 - 0.1 * abs(math.log10(rate) + 2), "speed": 0.0}

    tail = [setting["client_lr"] for setting, _ in search("tpe", seed, best_at_zero)[24:]]
    assert 0.25 <= sum(rate == 0 for rate in tail) / len(tail) <= 0.55
    assert len({rate for rate in tail if rate}) >= 15  # and the range is searched, not one value of it


def test_a_point_that_is_all_there_is_beside_a_range_is_proposed_once():
    space = {"client_lr": Float(1e-3, 1.0, log=True, also=(0,)), "server_lr": Choice((0.1,))}
    sampler = build("tpe", space, ("quality", "speed"), 0)
    proposed = []
    for number in range(40):
        setting = sampler.ask(number)
        proposed.append(setting["client_lr"])
        sampler.tell(number, setting, {"quality": 1.0 if not setting["client_lr"] else 0.5, "speed": 1.0})
    assert proposed.count(0) == 1
    assert len(set(proposed)) == 40


def test_the_diverging_region_is_left():
    def function(setting):
        return None if setting["server_lr"] > 0.03 or setting["client_lr"] > 0.3 else smooth(setting)

    def diverged(name, part):
        return np.mean([[values is None for _, values in found][part] for found in searches[name]])

    searches = {name: [search(name, seed, function, trials=60) for seed in range(3)] for name in ("tpe", "random")}
    first, last = slice(0, 20), slice(40, 60)
    assert diverged("tpe", last) < 0.8 * diverged("tpe", first)
    assert diverged("tpe", last) < 0.6 * diverged("random", last)


def test_running_trials_are_kept_away_from():
    sampler = build("tpe", SPACE, ("quality", "speed"), 0)
    for number in range(20):
        setting = sampler.ask(number)
        sampler.tell(number, setting, smooth(setting))
    proposals = [sampler.ask(number) for number in range(20, 36)]
    assert len({setting["server_lr"] for setting in proposals}) == 16


def test_failed_trials_are_forgotten():
    one, other = (build("tpe", SPACE, ("quality", "speed"), 0) for _ in range(2))
    for sampler in (one, other):
        for number in range(14):
            setting = sampler.ask(number)
            sampler.tell(number, setting, smooth(setting))
    lost = other.ask(14)
    other.tell(14, lost, None, diverged=False)
    assert one.ask(15) == other.ask(15)


def test_nothing_is_printed_and_the_users_own_verbosity_stays():
    code = """
import warnings; warnings.simplefilter("error")
import optuna; optuna.logging.set_verbosity(optuna.logging.DEBUG)
from search_spaces.parameters import Float
from service.samplers.build import build
for objectives in (("quality", "speed"), ("quality",)):
    sampler = build("tpe", {"x": Float(1e-3, 1, log=True, also=(0,)), "y": Float(0, 1)}, objectives, 0)
    for number in range(30):
        setting = sampler.ask(number)
        sampler.tell(number, setting, {"quality": setting["x"], "speed": setting["y"]})
assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
