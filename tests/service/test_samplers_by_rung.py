"""What the samplers of rungs hear: values at their own rung only, of trials that trained until it."""

from hypothesis import given
from hypothesis import strategies as st

from search_spaces.parameters import Choice, Float
from service.driver.search.rules import Halving
from service.driver.search.rungs import goals
from service.samplers.build import build
from service.samplers.by_rung import ByRung, enough
from tests.driver.test_rungs import RUNGS, searches

SPACE = {"client_lr": Float(1e-3, 1.0, log=True), "local_steps": Choice((1, 5, 10))}


class Spy:
    """Remembers what it was told, by the trials' numbers; proposes its own name."""

    def __init__(self, name):
        self.name = name
        self.running = set()
        self.heard = {}

    def ask(self, number):
        self.running.add(number)
        return {"name": self.name}

    def pending(self, number, hyperparameters):
        self.running.add(number)

    def tell(self, number, hyperparameters, values, diverged=False):
        self.running.discard(number)
        self.heard[number] = "DIVERGED" if diverged else values


def told(climbs, order):
    """The spies of all rungs after a whole search, whose trials were told in this order."""
    spies = [Spy(f"rung {rung}") for rung in range(RUNGS)]
    sampler = ByRung(spies, least=3)
    final = goals(Halving(), RUNGS, climbs)
    for climb in climbs:
        sampler.pending(climb.number, {})
    for number in order:
        climb, goal = climbs[number], final[number]
        values = [
            {"quality": pair[0], "speed": pair[1]}
            for pair in (arrival.values for arrival in climb.arrivals[: goal.rung + 1])
        ]
        ended = climb.ended and len(climb.arrivals) <= goal.rung
        state = "DIVERGED" if ended else "STOPPED" if goal.stopped else "COMPLETE"
        sampler.tell(number, {}, values, state)
    return sampler, spies, final


@given(searches(), st.randoms(use_true_random=False))
def test_no_value_is_told_that_a_trial_does_not_have_at_this_rung(climbs, random):
    order = [climb.number for climb in climbs]
    random.shuffle(order)
    _, spies, final = told(climbs, order)
    for climb in climbs:
        goal = final[climb.number]
        diverged = climb.ended and len(climb.arrivals) <= goal.rung
        for rung, spy in enumerate(spies):
            if diverged:
                assert spy.heard[climb.number] == "DIVERGED"
            elif rung <= goal.rung:
                assert tuple(spy.heard[climb.number].values()) == climb.arrivals[rung].values
            else:
                assert climb.number not in spy.heard
                assert climb.number in spy.running, "it is not proposed again, and nothing is said about its value"


@given(searches())
def test_the_highest_rung_with_enough_trials_proposes_and_all_others_know(climbs):
    sampler, spies, _ = told(climbs, range(len(climbs)))
    arrived = [sum(values not in (None, "DIVERGED") for values in spy.heard.values()) for spy in spies]
    expected = max((rung for rung in range(RUNGS) if arrived[rung] >= 3), default=0)
    assert sampler.ask(99) == {"name": f"rung {expected}"}
    assert all(99 in spy.running for spy in spies)


def test_failed_trials_are_ignored_at_all_rungs():
    spies = [Spy("low"), Spy("high")]
    sampler = ByRung(spies, least=1)
    sampler.pending(0, {})
    sampler.tell(0, {}, [{"quality": 1.0}, {"quality": 1.0}], "FAILED")
    assert [spy.heard for spy in spies] == [{0: None}, {0: None}]
    assert not spies[0].running | spies[1].running
    assert sampler.ask(1) == {"name": "low"}


def test_a_single_rung_proposes_what_its_sampler_proposes_alone():
    alone, single = build("tpe", SPACE, ("quality",), 7), ByRung([build("tpe", SPACE, ("quality",), 7)], least=3)
    for number in range(30):
        hyperparameters = alone.ask(number)
        assert single.ask(number) == hyperparameters
        value = {"quality": -abs(hyperparameters["client_lr"] - 0.1)}
        alone.tell(number, hyperparameters, value)
        single.tell(number, hyperparameters, [value], "COMPLETE")


def test_a_higher_rung_takes_over_when_its_own_sampler_is_ready():
    assert enough("tpe", SPACE) == 10
    assert enough({"name": "tpe", "startup": 4}, SPACE) == 4
    assert enough("gp", {f"parameter {number}": Float(0.0, 1.0) for number in range(12)}) == 14
    assert enough({"name": "nsga2", "population_size": 40}, SPACE) == 40


def test_a_higher_rung_of_nsga2_does_not_replace_a_lower_one_by_random_draws():
    sampler, rungs = {"name": "nsga2", "population_size": 40}, 2
    made = [build(sampler, SPACE, ("quality",), 7) for _ in range(rungs)]
    by_rung, low = ByRung(made, enough(sampler, SPACE)), build(sampler, SPACE, ("quality",), 7)
    for number in range(40):
        hyperparameters = by_rung.ask(number)
        low.pending(number, hyperparameters)
        value = {"quality": -abs(hyperparameters["client_lr"] - 0.1)}
        promoted = number % 3 == 0
        by_rung.tell(number, hyperparameters, [value] * (1 + promoted), "COMPLETE" if promoted else "STOPPED")
        low.tell(number, hyperparameters, value)
    assert by_rung.ask(40) == low.ask(40)
