"""No sampler proposes a configuration that breaks a constraint, and each stays reproducible."""

import random

import pytest

from driftline.errors import InvalidSpec
from driftline.study import sampler as samplers
from search_spaces.constraints import Constraint, all_hold
from search_spaces.parameters import Choice, Float
from service.samplers import quasi_random
from service.samplers.allowed import Filtered, Replaced
from service.samplers.build import build

OBJECTIVES = ("quality", "speed")
NAMES = list(samplers.registry())
SPACE = {
    "client_lr": Float(1e-2, 10, log=True, also=(0,)),
    "local_steps": Choice((1, 5, 10, 50)),
    "server.momentum": Float(0, 0.99, log=True, complement=True),
}
CONSTRAINTS = [Constraint("client_lr * local_steps <= 1"), Constraint("server.momentum >= client_lr")]


def values_of(setting):
    """Better outside of what is allowed; None where it diverges."""
    if setting["local_steps"] == 50 and setting["client_lr"] > 0.015:
        return None
    return {"quality": setting["client_lr"] * setting["local_steps"], "speed": setting["local_steps"] / 50}


def search(sampler, numbers, running):
    """Finishes a trial whenever three are running; returns what is proposed."""
    proposed = []
    for number in numbers:
        proposed.append(sampler.ask(number))
        running.append((number, proposed[-1]))
        if len(running) == 3:
            finished, setting = running.pop(0)
            values = values_of(setting)
            sampler.tell(finished, setting, values, diverged=values is None)
    return proposed


@pytest.mark.parametrize("name", NAMES)
def test_no_proposal_breaks_a_constraint_and_a_rebuilt_sampler_goes_on(name):
    space = SPACE if name in ("gp", "cmaes") else {**SPACE, "prox": Choice(("a", "b"))}
    if name == "cmaes":
        space = {**SPACE, "client_lr": Float(0, 10)}
    objectives = OBJECTIVES[:1] if name in ("cmaes", "staged") else OBJECTIVES
    start = [{"local_steps": 10}, {"client_lr": 0.0}]
    more = {"start": start, "constraints": CONSTRAINTS}
    end = 12 if name == "gp" else 24
    sampler, running = build(name, space, objectives, 7, **more), []
    proposed = search(sampler, range(end), running)
    assert [setting | point for setting, point in zip(proposed, start, strict=False)] == proposed[:2]
    for setting in proposed:
        assert setting.keys() == space.keys()
        assert all(space[key].contains(value) for key, value in setting.items())
        assert all_hold(CONSTRAINTS, setting)
    if name in ("random", "quasi_random", "tpe"):
        assert len({str(setting) for setting in proposed}) == end
    rebuilt = build(name, dict(reversed(space.items())), objectives, 7, **more)
    history = list(enumerate(proposed))
    random.Random(0).shuffle(history)
    for number, setting in history:
        if (number, setting) in running:
            rebuilt.pending(number, setting)
        else:
            values = values_of(setting)
            rebuilt.tell(number, setting, values, diverged=values is None)
    assert rebuilt.ask(end) == sampler.ask(end)


@pytest.mark.parametrize("name", ["random", "quasi_random"])
def test_sequences_replace_what_is_not_allowed_and_keep_the_rest_in_its_place(name):
    whole = [build(name, SPACE, OBJECTIVES, 3).ask(number) for number in range(60)]
    allowed = [all_hold(CONSTRAINTS, setting) for setting in whole]
    sampler = build(name, SPACE, OBJECTIVES, 3, constraints=CONSTRAINTS)
    kept = [sampler.ask(number) for number in reversed(range(60))][::-1]
    assert [own == other for own, other in zip(whole, kept, strict=True)] == allowed
    assert 3 < sum(allowed) < 60
    assert len({str(setting) for setting in kept}) == 60


@pytest.mark.parametrize("name", ["random", "quasi_random"])
def test_no_later_trial_repeats_what_completes_a_start(name):
    space = {"a": Float(0, 1), "b": Float(0, 1)}
    sampler = build(name, space, OBJECTIVES, 1, start=[{"a": 0.1}], constraints=[Constraint("b <= a")])
    assert len({sampler.ask(number)["b"] for number in range(20)}) == 20


def test_a_grid_leaves_out_what_is_not_allowed_and_keeps_its_order():
    whole = map(build("grid", SPACE, OBJECTIVES, 3).ask, range(60))
    kept = [setting for setting in whole if all_hold(CONSTRAINTS, setting)]
    sampler = build("grid", SPACE, OBJECTIVES, 3, constraints=CONSTRAINTS)
    assert [sampler.ask(number) for number in reversed(range(len(kept)))] == kept[::-1]


def test_gp_looks_for_the_best_configuration_that_is_allowed():
    """The best of all breaks the constraint; random configurations would seldom be near the boundary."""
    space = {"client_lr": Float(1e-3, 10, log=True), "local_steps": Choice((1, 2, 5, 10))}
    constraints = [Constraint("client_lr * local_steps <= 0.1")]
    sampler = build("gp", space, ("quality",), 1, constraints=constraints)
    proposed = []
    for number in range(13):
        proposed.append(sampler.ask(number))
        sampler.tell(number, proposed[-1], {"quality": proposed[-1]["client_lr"] * proposed[-1]["local_steps"]})
    products = [setting["client_lr"] * setting["local_steps"] for setting in proposed]
    assert max(products) <= 0.1 * (1 + 1e-8)
    assert sum(product > 0.09 for product in products[10:]) >= 2


def test_a_sampler_of_another_package_hears_what_replaces_its_proposals():
    heard = {}

    class Other:
        """Always proposes the same."""

        def ask(self, number):
            return {"a": 4 if number == 1 else 1}

        def pending(self, number, hyperparameters):
            heard[number] = hyperparameters

    space, constraints = {"a": Choice((1, 2, 3, 4))}, [Constraint("a <= 2")]
    spare = Filtered(quasi_random.Sampler(space, OBJECTIVES, 0), constraints)
    sampler = Replaced(Other(), constraints, spare)
    assert [sampler.ask(number) for number in range(3)] == [{"a": 1}, spare.ask(1), {"a": 1}]
    assert heard == {1: spare.ask(1)}


def test_a_space_of_which_nothing_is_left():
    sampler = build("random", {"a": Float(0, 1)}, OBJECTIVES, 0, constraints=[Constraint("a >= 2")])
    with pytest.raises(InvalidSpec, match=r"^constraints: less than 0.01 % of the space satisfies a >= 2: 10000 "):
        sampler.ask(0)
