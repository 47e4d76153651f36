"""Proposals around configurations that were good in an earlier study (`service.samplers.informed`)."""

from typing import Any

import pytest

from search_spaces.constraints import Constraint
from search_spaces.parameters import Choice, Float, Int, Space
from service.samplers.build import build
from service.samplers.informed import SHARE, STARTUP, share
from service.samplers.sampler import Sampler

SPACE: Space = {
    "client_lr": Float(1e-3, 10.0, log=True, also=(0.0,)),
    "server_lr": Float(1e-3, 10.0, log=True),
    "local_steps": Choice((1, 2, 4, 8, 16)),
    "window": Int(1, 100, log=True),
}
GOOD = [{"client_lr": 0.1, "server_lr": 2.0, "local_steps": 8, "window": 10}]
LEARNERS = ["tpe", "gp", "nsga2"]


def made(sampler: str, **more: Any) -> Sampler:
    return build(sampler, SPACE, ("quality", "speed"), 7, **more)


def close(configuration: dict[str, Any]) -> bool:
    return 0.02 < configuration["client_lr"] < 0.5 and 0.4 < configuration["server_lr"] < 10


def score(configuration: dict[str, Any]) -> dict[str, float]:
    return {"quality": -abs(configuration["server_lr"] - 1.0), "speed": -float(configuration["local_steps"])}


def searched(sampler: Sampler, count: int, told: bool = True) -> list[dict[str, Any]]:
    """The first configurations, asked for in generations of 4 whose results are told two generations later."""
    configurations: list[dict[str, Any]] = []
    while len(configurations) < count:
        for number in range(max(0, len(configurations) - 8), max(0, len(configurations) - 4)):
            if told:
                sampler.tell(number, configurations[number], score(configurations[number]))
        first = len(configurations)
        configurations += [sampler.ask(number) for number in range(first, first + 4)]
    return configurations


@pytest.mark.parametrize("name", LEARNERS)
def test_a_part_of_the_startup_is_near_the_prior_and_a_part_stays_uninformed(name: str) -> None:
    first = searched(made(name, prior=GOOD), STARTUP + 2, told=False)
    plain = searched(made(name), STARTUP + 2, told=False)
    own = sum(configuration in plain for configuration in first)
    assert 2 <= own <= STARTUP  # the inner sampler's own
    assert sum(map(close, first)) > sum(map(close, plain))


def test_the_share_of_the_prior_falls_with_the_number_of_trials() -> None:
    assert share(0) == share(STARTUP - 1) == SHARE
    assert sum(map(share, range(64))) < 15
    assert all(share(number + 1) <= share(number) for number in range(200))


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_a_rebuilt_sampler_proposes_the_same(name: str) -> None:
    """Its rows are restored in another order than they arrived in."""
    sampler = made(name, prior=GOOD)
    configurations = searched(sampler, 24)
    again = made(name, prior=GOOD)
    for number in reversed(range(20)):
        again.pending(number, configurations[number])
    for number in reversed(range(16)):
        again.tell(number, configurations[number], score(configurations[number]))
    assert [again.ask(number) for number in range(20, 24)] == configurations[20:]
    assert searched(made(name, prior=GOOD), 24) == configurations


def test_proposals_lie_in_the_space_satisfy_the_constraints_and_are_new() -> None:
    constraint = Constraint("client_lr * local_steps <= 1")
    sampler = made("tpe", prior=[*GOOD, {"client_lr": 0.0, "local_steps": 1}], constraints=[constraint])
    configurations = searched(sampler, 40)
    for configuration in configurations:
        assert all(SPACE[name].contains(value) for name, value in configuration.items())
        assert configuration["client_lr"] * configuration["local_steps"] <= 1
    assert len({tuple(configuration.items()) for configuration in configurations}) == 40
    assert any(configuration["client_lr"] == 0 for configuration in configurations)


def test_starting_points_come_before_the_prior() -> None:
    sampler = made("tpe", prior=GOOD, start=[{"client_lr": 5.0}])
    assert sampler.ask(0)["client_lr"] == 5.0


def test_samplers_that_do_not_learn_are_unchanged() -> None:
    for name in ("random", "quasi_random"):
        assert [made(name, prior=GOOD).ask(n) for n in range(8)] == [made(name).ask(n) for n in range(8)]
