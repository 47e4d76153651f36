"""The spaces of mixed federated learning: the authors' ties and settings."""

import pytest

from search_spaces import mixing, spaces
from search_spaces.methods import all_on_client, one_way_transfer, parallel_training, pooled_training, two_way_transfer
from search_spaces.parameters import is_fixed
from trainers.trial.document import parse

DIGITS = {"name": "digits", "central": {"fraction": 0.1}}
METHODS = {
    module.__name__.rpartition(".")[2]: module
    for module in (parallel_training, one_way_transfer, two_way_transfer, pooled_training, all_on_client)
}
BRANCHED = ("parallel_training", "two_way_transfer")


def only(space):
    """The one setting of a space."""
    assert all(is_fixed(parameter) for parameter in space.values())
    return {name: parameter.ends()[0] for name, parameter in space.items()}


def member(name, setting):
    return parse({"task": DIGITS, "method": {"name": name, **setting}, "rounds": 1}).method.member(0)


@pytest.mark.parametrize("name", ["parallel_training", "one_way_transfer", "two_way_transfer"])
def test_settings_of_the_paper_make_trials(name):
    """Appendix C.2: rates, steps, central batches and weights of the three tasks."""
    module, one_way, two_way = METHODS[name], name == "one_way_transfer", name == "two_way_transfer"
    wanted = {
        "smile": (0.01, 2, 1000 if one_way else 500, 0.5),
        "language": (1.0 if two_way else 2.0, 16, 6400 if one_way else 800, 0.73),
        "movies": (0.5, 10, None, 0.5),
    }
    for task, (rate, steps, size, weight) in wanted.items():
        found = member(name, only(getattr(module, task)()))
        assert (found["client_lr"], found["server_lr"], found["local_steps"]) == (rate, rate, steps)
        assert (found["central_batch_size"], found["federated_weight"]) == (size, weight)
        assert found["central_weight"] == pytest.approx(1 - weight)
        if not one_way:
            assert (found["central_steps"], found["central_lr"], found["merge_lr"]) == (steps, None, 1.0)


def test_central_batches_follow_the_rule_of_the_paper():
    """As many examples as all clients of a step, or of a round; the language task's one-way batch is half of it."""
    cohort = mixing.COHORT["clients_per_round"]
    for task, steps, share in (("smile", 2, 1.0), ("language", 16, 0.5)):
        step = cohort * mixing.COHORT[f"{task}_batch_size"]
        make = getattr(mixing, task)
        assert only(make("parallel_training"))["central_batch_size"] == step
        assert only(make("one_way_transfer"))["central_batch_size"] == steps * step * share


@pytest.mark.parametrize("name", METHODS)
def test_ties_leave_the_rate_alone(name):
    space = METHODS[name].tied()
    assert spaces.free(space) == ("client_lr",)
    setting = {key: parameter.ends()[0] for key, parameter in space.items()}
    assert member(name, setting)["server_lr"] == setting["client_lr"]


@pytest.mark.parametrize("name", [*BRANCHED, "one_way_transfer"])
def test_the_wide_space_makes_trials(name):
    space = METHODS[name].wide()
    for u in (0.0, 0.5, 0.99):
        member(name, {key: parameter.from_unit(u) for key, parameter in space.items()})
    assert ("central_lr" in space) == (name in BRANCHED)


def test_adam_and_sweeps():
    for module in (one_way_transfer, all_on_client):
        assert only(module.movies_adam())["server_lr"] == 0.01
    assert mixing.central_batches()["central_batch_size"].options == (5, 25, 100, 500, 1000)
    for setting in mixing.steps_against_rate():
        assert setting["client_lr"] * setting["local_steps"] == pytest.approx(0.02)
        member("parallel_training", setting)
