"""Documents of version 0.1: translated where one asks for it, refused with their new names where one does not."""

import pytest

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from search_spaces import parameters
from trainers.errors import SpecError
from trainers.trial.document import parse
from trainers.trial.version_0_1 import entry, hyperparameters, new_name, trial

TASK = {"name": "quadratic", "problem": "two_clients"}
CENTRAL = {**TASK, "central": {"hessian": [[1.0]], "center": [0.0]}}
FEDAVG = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
NONE = {"client_momentum": None, "client_beta1": None, "client_beta2": None, "client_epsilon": None}
MIXED = {"name": "two_way_transfer", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}

TRIALS = [
    # an optimizer with settings; nulls, which canonical documents hold, are gone
    (
        {**FEDAVG, **NONE, "client_optimizer": "adam", "client_beta1": 0.8, "client_epsilon": 0.1},
        None,
        {"method": FEDAVG, "client": {"name": "adam", "beta1": 0.8, "epsilon": 0.1}},
        None,
    ),
    ({**FEDAVG, **NONE, "client_optimizer": "sgd"}, None, {"method": FEDAVG, "client": {"name": "sgd"}}, None),
    # members take dotted names, and null takes back what all share
    (
        {**FEDAVG, "client_optimizer": "rmsprop", "client_beta2": 0.5, "client_epsilon": 0.1},
        [{"client_lr": 0.2, "client_beta2": 0.6}, {"client_beta2": None}, {"client_epsilon": None}],
        {"method": FEDAVG, "client": {"name": "rmsprop", "beta2": 0.5, "epsilon": 0.1}},
        [{"client_lr": 0.2, "client.beta2": 0.6}, {"client.beta2": 0.99}, {"client.epsilon": 1e-8}],
    ),
    (
        {**FEDAVG, "client_optimizer": "momentum"},
        [{"client_momentum": 0.5}, {"client_momentum": None}],
        {"method": FEDAVG, "client": {"name": "momentum"}},
        [{"client.momentum": 0.5}, {}],
    ),
    # momentum was beta1 of all but sgd; merge is merge_by
    (
        {**MIXED, "central_momentum": 0.3, "central_epsilon": None, "merge_optimizer": "adam", "merge_momentum": 0.4,
         "merge_epsilon": 0.1, "merge": "mean"},
        [{"central_momentum": 0.1, "merge_momentum": 0.2}, {"central_momentum": None, "merge_momentum": None}],
        {"method": {**MIXED, "merge_by": "mean"}, "central": {"name": "sgd", "momentum": 0.3},
         "merge": {"name": "adam", "beta1": 0.4, "epsilon": 0.1}},
        [{"central.momentum": 0.1, "merge.beta1": 0.2}, {"central.momentum": 0.0, "merge.beta1": 0.9}],
    ),
    (
        {**MIXED, "central_optimizer": "adagrad", "central_momentum": 0.5, "merge_optimizer": "yogi"},
        [{"central_momentum": None}],
        {"method": MIXED, "central": {"name": "adagrad", "beta1": 0.5}, "merge": {"name": "yogi"}},
        [{"central.beta1": 0.0}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("method", "members", "wanted", "named"), TRIALS)
def test_trials(method, members, wanted, named):
    shared = {"task": CENTRAL, "server": {"name": "sgd", "momentum": 0.5}, "rounds": 2}
    old = {**shared, "method": method} | ({} if members is None else {"members": members})
    new = {**shared, **wanted} | ({} if named is None else {"members": named})
    before = repr(old)
    assert trial(old) == new
    assert repr(old) == before
    assert trial(new) == new
    parse(new)


def test_what_is_no_trial_is_left_to_be_refused():
    assert trial({"rounds": 2}) == {"rounds": 2}
    assert trial({"method": {"client_optimizer": "adam"}}) == {"method": {}, "client": {"name": "adam"}}
    odd = {"method": {"name": "fedavg"}, "members": ["x"]}
    assert trial(odd) == odd


def test_hyperparameters():
    own = {"client_lr": 0.1, "server.momentum": 0.9, "client_optimizer": "adam", "client_beta1": 0.5}
    assert hyperparameters("fedavg", own) == {"client_lr": 0.1, "server.momentum": 0.9, "client.beta1": 0.5}
    own = {"merge": "mean", "central_optimizer": "yogi", "central_momentum": 0.5, "merge_momentum": 0.1}
    wanted = {"merge_by": "mean", "central.beta1": 0.5, "merge.momentum": 0.1}
    assert hyperparameters("parallel_training", own) == wanted
    assert hyperparameters("another", {"merge": 3, "client_momentum": None}) == {"merge": 3}
    assert hyperparameters("fedavg", {"client.beta1": 0.5}) == {"client.beta1": 0.5}


def test_entries():
    space = {"client_lr": {"float": [0.1, 1]}, "client_momentum": {"choice": [0.0, 0.9]}}
    old = {"label": "a", "name": "fedavg", "space": space | {"client_optimizer": {"choice": ["momentum"]}}}
    old |= {"server": {"name": "adam", "space": {}}, "start": [{"client_lr": 0.1, "client_momentum": 0.9}, "x"]}
    client = {"name": "momentum", "space": {"momentum": {"choice": [0.0, 0.9]}}}
    new = {**old, "space": {"client_lr": space["client_lr"]}, "client": client}
    new["start"] = [{"client_lr": 0.1, "client.momentum": 0.9}, "x"]
    assert entry(old) == new
    assert entry(new) == new
    branched = {"merge": {"choice": ["sum", "mean"]}, "central_optimizer": "adam", "central_momentum": 0.3}
    branched |= {"merge_momentum": {"float": [0, 0.9]}}
    assert entry({"name": "parallel_training", "space": branched}) == {
        "name": "parallel_training",
        "space": {"merge_by": {"choice": ["sum", "mean"]}},
        "central": {"name": "adam", "space": {"beta1": 0.3}},
        "merge": {"name": "sgd", "space": {"momentum": {"float": [0, 0.9]}}},
    }
    for same in (
        {"name": "fedavg"},
        {"preset": "fedadam", "space": "default"},
        {"preset": "fedadam", "space": {"x": 1}},
    ):
        assert entry(same) == same


def test_a_choice_of_optimizers_is_an_entry_for_each():
    for form in ({"choice": ["adam", "sgd"]}, ["adam"], {"float": [0, 1]}, 3):
        with pytest.raises(SpecError) as caught:
            entry({"name": "fedavg", "space": {"client_optimizer": form}})
        assert str(caught.value) == (
            f"space.client_optimizer must have one value, got {form!r}: make an entry for each optimizer"
        )
    assert parameters.from_json("adam").options == ("adam",)


OLD = [
    ({**FEDAVG, "client_optimizer": "adam"}, {}, "method.client_optimizer is now client.name"),
    ({**FEDAVG, "client_beta1": 0.5}, {}, "method.client_beta1 is now client.beta1"),
    ({**MIXED, "central_momentum": 0.5}, {}, "method.central_momentum is now central.momentum"),
    ({**MIXED, "merge_momentum": 0.5, "merge_optimizer": "adam"}, {}, "method.merge_momentum is now merge.beta1"),
    ({**MIXED, "merge": "mean"}, {}, "method.merge is now method.merge_by"),
    (FEDAVG, {"members": [{}, {"client_epsilon": 0.1}]}, "members.1.client_epsilon is now client.epsilon"),
]


@pytest.mark.parametrize(("method", "more", "message"), OLD)
def test_the_old_spelling_is_refused_with_the_new_one(method, more, message):
    with pytest.raises(SpecError) as caught:
        parse({"task": CENTRAL, "method": method, "rounds": 1, **more})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        ("fedavg", {"client_optimizer": "adam"}, "methods[0].space.client_optimizer: is now client.name"),
        ("fedavg", {"client_beta1": 0.5}, "methods[0].space.client_beta1: is now client.space.beta1"),
        (
            "two_way_transfer",
            {"merge_momentum": 0.5, "merge_optimizer": "adam"},
            (
                "methods[0].space.merge_momentum: is now merge.space.beta1\n"
                "methods[0].space.merge_optimizer: is now merge.name"
            ),
        ),
        ("two_way_transfer", {"merge": "mean"}, "methods[0].space.merge: is now space.merge_by"),
    ],
)
def test_a_study_in_the_old_spelling_is_refused_with_the_new_one(name, space, message):
    rates = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 2}
    study = Study.from_json(
        {
            "name": "old",
            "task": CENTRAL,
            "methods": [{"name": name, "space": rates | space}],
            "objective": {"quality": "loss", "cost": "rounds"},
            "budget": {"trials_per_method": 1, "rounds": 2, "seeds": 0},
        }
    )
    with pytest.raises(InvalidSpec) as caught:
        study.check()
    assert str(caught.value) == message


def test_names_that_were_never_an_optimizers_stay():
    for key in ("client_lr", "client_weights", "central_lr", "merge_lr", "momentum", 3):
        assert new_name(key, {"name": "parallel_training"}) is None
    assert new_name("merge", {"name": "fedavg"}) is None
