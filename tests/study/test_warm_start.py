"""Starting points from the recommendations of an earlier study."""

import pytest

from driftline import Frontier
from driftline.errors import InvalidSpec
from driftline.results.document import Reading, frontier_document
from driftline.study.spec import Study
from driftline.study.warm_start import warm_started
from tests.driver.store_client import quadratic
from tests.results.samples import study as sample_trials

SPACE = {
    "client_lr": {"float": [0.01, 1.0], "log": True, "also": [0]},
    "server_lr": {"float": [0.1, 10.0]},
    "local_steps": {"choice": [1, 10, 100]},
}


def entry(label="fedavg", **changes):
    return {"name": "fedavg", "label": label, "space": SPACE, **changes}


def make(*entries, trials=16, sampler="tpe") -> Study:
    return quadratic(
        methods=list(entries), sampler=sampler, budget={"trials_per_method": trials, "rounds": 2, "seeds": 0}
    )


def test_values_are_kept_moved_or_left_to_the_sampler():
    space = {**SPACE, "local_steps": {"int": [2, 20], "also": [50]}}
    space |= {"weight_decay": 0.1, "clip_norm": {"choice": [None, 1.0]}}
    new = make(entry(space=space, constraints=["client_lr * server_lr <= 5"]))
    recommended = [
        {"client_lr": 0.0, "server_lr": 1.0, "local_steps": 100},
        {"client_lr": 2.0, "server_lr": 3, "local_steps": 1.4, "other": 1},
        {"client_lr": 0.004, "server_lr": 0.05, "local_steps": 10.4, "weight_decay": 0.5, "clip_norm": 7.0},
        {"client_lr": 0.0, "server_lr": 1.0, "local_steps": 20},  # the same as the first one
        {"client_lr": 1.0, "server_lr": 9.0},  # breaks the constraint
    ]
    started = warm_started(new, make(entry()), {"fedavg": recommended})
    assert started.methods[0].start == [
        {"client_lr": 0.0, "local_steps": 20, "server_lr": 1.0},
        {"client_lr": 1.0, "local_steps": 2, "server_lr": 3.0},
        {"client_lr": 0.01, "clip_norm": 1.0, "local_steps": 10, "server_lr": 0.1, "weight_decay": 0.1},
    ]
    assert started.check() == new.check()
    assert started.fingerprint() != new.fingerprint()
    points = [{"local_steps": 25}, {"local_steps": 40}, {"local_steps": "x", "server_lr": 1}]
    choices = warm_started(make(entry()), make(entry()), {"fedavg": points})
    assert choices.methods[0].start == [{"local_steps": 10}, {"local_steps": 100}, {"server_lr": 1.0}]  # by ratio


def test_rates_of_gradient_descent_are_multiplied_by_the_factor():
    point = {"client_lr": 0.1, "server_lr": 1.23456, "local_steps": 10}
    points = {"a": [point, {**point, "client_lr": 0}, {**point, "client_lr": 0.9}]}

    def first(count=1, **changes):
        one = entry("a", **changes)
        return warm_started(make(one), make(one), points, factor=2.0).methods[0].start[:count]

    doubled = {"client_lr": 0.2, "local_steps": 10, "server_lr": 2.47}
    assert first(3) == [doubled, {**doubled, "client_lr": 0.0}, {**doubled, "client_lr": 1.0}], "inside the range"
    assert first(server="adam") == [{**doubled, "server_lr": 1.23456}], "steps of adam have the size of its rate"
    assert first(client="adam") == first(name="feddyn") == [point], "no theory of their rates"


def test_own_points_come_first_and_at_most_eight_more_fit_into_the_budget():
    points = [{"server_lr": float(number)} for number in range(1, 10)]
    own = [{"client_lr": 0.5}]
    started = warm_started(make(entry(start=own)), make(entry()), {"fedavg": points})
    assert started.methods[0].start == own + points[:8]
    started = warm_started(make(entry(start=own), trials=4), make(entry()), {"fedavg": points})
    assert started.methods[0].start == own + points[:3]


def test_entries_take_from_those_with_their_method_and_optimizers():
    momentum = {"name": "sgd", "space": {"momentum": {"choice": [0.0, 0.9]}}}
    plateau = {"name": "plateau", "space": {"window": {"int": [5, 50]}}}
    earlier = make(
        entry("plain"),
        entry("heavy", server=momentum, client="sgd", schedule=plateau),
        entry("adam", server="adam"),
        {**entry("prox"), "name": "fedprox"},
    )
    recommended = {
        "plain": [{"client_lr": 0.1}],
        "heavy": [{"client_lr": 0.2, "server.momentum": 0.9, "schedule.window": 7}],
        "adam": [{"client_lr": 0.3}],
        "prox": [{"client_lr": 0.4}],
    }
    new = make(
        entry("plain", server=momentum),
        entry("other", server=momentum),
        entry("adams", server="adam"),
        entry("yogi", server="yogi"),
        entry("late", schedule={**plateau, "space": {"window": {"int": [10, 50]}}}),
    )
    starts = {entry.label: entry.start for entry in warm_started(new, earlier, recommended).methods}
    heavy = {"client_lr": 0.2, "server.momentum": 0.9}
    assert starts == {
        "plain": [{"client_lr": 0.1}],
        "other": [{"client_lr": 0.1}, heavy],
        "adams": [{"client_lr": 0.3}],
        "yogi": [],
        "late": [{"client_lr": 0.1}, {"client_lr": 0.2, "schedule.window": 10}],
    }


@pytest.mark.parametrize("recommended", [{}, {"fedavg": [{"prox": 1.0}]}], ids=["nothing", "nothing in the space"])
def test_nothing_to_take_is_an_error(recommended):
    with pytest.raises(InvalidSpec, match=r"^warm_start: \S+ recommends nothing for a method of "):
        warm_started(make(entry()), make(entry()), recommended)


def test_a_frontier_gives_its_recommendations_of_the_largest_costs_first():
    reading = Reading("test_accuracy", "rounds")
    frontier = Frontier(frontier_document("digits", sample_trials(("fedavg",), 16, confirm=3), reading, 200))
    space = {name: {"float": [-1e9, 1e9]} for name in frontier.recommendations[0].hyperparameters}
    wide = make(entry(space={**SPACE, **space}))
    frontier.data["specification"] = wide.to_json()
    start = frontier.warm_started(wide).methods[0].start
    rows = {row.configuration: row.hyperparameters for row in reversed(frontier.recommendations)}
    assert start == list(rows.values())
    assert len(rows) > 1


def test_good_configurations_become_the_prior_of_a_sampler_that_learns():
    good = {"fedavg": [{"server_lr": float(number % 20)} for number in range(1, 40)]}
    recommended = {"fedavg": [{"server_lr": 3.0}]}
    started = warm_started(make(entry()), make(entry()), recommended, good)
    prior = started.methods[0].prior
    assert len(prior) == 11  # values beyond 10 are moved to 10, and none is there twice
    assert {"server_lr": 10.0} in prior
    assert started.to_json()["methods"][0]["prior"] == prior
    assert Study.from_json(started.to_json()) == started
    own = make(entry(prior=[{"client_lr": 0.5}]))
    assert warm_started(own, make(entry()), recommended, good).methods[0].prior == [{"client_lr": 0.5}]
    assert not warm_started(make(entry(), sampler="random"), make(entry()), recommended, good).methods[0].prior


def test_a_frontier_gives_what_it_confirmed_or_its_pareto_set():
    reading = Reading("test_accuracy", "rounds")
    space = {name: {"float": [-1e9, 1e9]} for name in ("server_lr", "client_lr", "server.momentum")}
    wide = make(entry(space={**SPACE, **space}, server={"name": "sgd", "space": {"momentum": {"float": [0, 1]}}}))
    for trials in (
        sample_trials(("fedavg",), 16, confirm=3),
        [t for t in sample_trials(("fedavg",), 16) if t.phase == "search"],
    ):
        frontier = Frontier(frontier_document("digits", trials, reading, 200))
        frontier.data["specification"] = wide.to_json()
        rows = frontier.data["methods"]["fedavg"]["configurations"]
        confirmed = frontier.data["methods"]["fedavg"]["reported"]["phase"] == "confirmation"
        prior = frontier.warm_started(wide).methods[0].prior
        assert len(prior) == sum(confirmed or row["pareto"] for row in rows)


def test_a_prior_is_checked_as_starting_points_are():
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.prior\[0\]\.server_lr: must lie in its space"):
        make(entry(prior=[{"server_lr": 11.0}]))
    study = make(entry(prior=[{"server_lr": 1.0}]), sampler="random")
    with pytest.raises(InvalidSpec, match=r"^methods\[0\]\.prior: must be left out for sampler random"):
        study.check()
