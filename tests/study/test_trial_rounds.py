"""Budgets in what trials spend: how many rounds each trial has, where its rungs are, and what is refused."""

from typing import Any

import pytest

import trainers
from driftline.errors import InvalidSpec
from driftline.study.budget import Budget
from driftline.study.spec import Study
from driftline.study.trial_document import structure, trial_document
from driftline.study.trial_rounds import rounds_range, trial_budget, usual_budget
from service.api.study_estimate import estimate
from service.store.stored_spec import StoredSpec

STEPS = {"client_lr": 0.1, "server_lr": 1.0, "local_steps": {"choice": [5, 1, 20]}}
BUDGET = {"trials_per_method": 8, "examples": 60_000}


def study(space: dict[str, Any] = STEPS, budget: dict[str, Any] = BUDGET, **changes: Any) -> Study:
    document = {
        "name": "spent",
        "task": {"name": "digits", "clients": 50, "partition": "iid"},
        "clients_per_round": 10,
        "batch_size": 10,
        "methods": [{"name": "fedavg", "space": space}],
        "budget": budget,
    }
    return Study.from_json(document | changes)


def rounds(one: Study, **values: Any) -> int:
    document = trial_document(one, one.labels[0], [{"client_lr": 0.1, "server_lr": 1.0, "local_steps": 5} | values], 0)
    assert trainers.parse(document).rounds == document["rounds"]
    return int(document["rounds"])


def test_a_trial_ends_with_the_last_round_that_fits() -> None:
    one = study()
    assert [rounds(one, local_steps=steps) for steps in (1, 5, 20, 7)] == [600, 120, 30, 85]
    assert rounds_range(one, one.methods[0]) == (30, 600)
    gradients = study(budget={"trials_per_method": 8, "client_gradients": 6_000})
    assert [rounds(gradients, local_steps=steps) for steps in (1, 5, 20)] == [600, 120, 30]
    assert Study.from_json(one.to_json()) == one
    assert one.to_json()["budget"] == {**BUDGET, "seeds": 6, "confirm": 8}


def test_sizes_count_wherever_they_are_given() -> None:
    sized = study(space={**STEPS, "clients_per_round": {"choice": [5, 20]}, "batch_size": {"int": [2, 20]}})
    assert rounds(sized, clients_per_round=20, batch_size=10) == 60
    assert rounds(sized, clients_per_round=5, batch_size=4) == 600
    assert rounds_range(sized, sized.methods[0]) == (7, 6000)
    assert rounds(study(methods=[{"name": "scaffold", "space": STEPS}])) == int(60_000 // (10 * (50 + 28.76)))


def test_a_cosine_falls_over_the_rounds_of_its_own_trial() -> None:
    one = study(methods=[{"name": "fedavg", "space": STEPS, "schedule": "cosine"}])
    values = {"client_lr": 0.1, "server_lr": 1.0, "local_steps": 20}
    assert trial_document(one, "fedavg", [values], 0)["schedule"]["rounds"] == 30


def test_rungs_are_at_the_same_fractions_of_the_budget() -> None:
    auto = study(budget={**BUDGET, "rungs": "auto"})
    entry = auto.methods[0]
    assert auto.rungs == {"fedavg": (6_666, 20_000, 60_000)}
    found = [trial_budget(auto, entry, {"local_steps": n, "client_lr": 1, "server_lr": 1}) for n in (1, 20)]
    assert [own.rung_rounds for own in found] == [(67, 200, 600), (4, 10, 30)]
    given = study(budget={**BUDGET, "rungs": {"at": [15_000, 30_000], "rule": "extrapolation"}})
    own = trial_budget(given, entry, {"local_steps": 20, "client_lr": 1, "server_lr": 1})
    assert (own.rung_rounds, own.rung_rule, own.unit) == ((8, 15, 30), "extrapolation", "rounds")


def test_configurations_of_a_pack_have_equal_rounds() -> None:
    one, values = study(), {"client_lr": 0.1, "server_lr": 1.0}
    kinds = {steps: structure(one, "fedavg", {**values, "local_steps": steps}) for steps in (1, 5, 20)}
    assert len(set(kinds.values())) == 3
    assert kinds[5] == structure(one, "fedavg", {**values, "client_lr": 0.5, "local_steps": 5})
    with pytest.raises(ValueError, match=r"must share their number of rounds, got \[600, 120\]"):
        trial_document(one, "fedavg", [{**values, "local_steps": steps} for steps in (1, 5)], 0)
    plain = study(budget={"trials_per_method": 8, "rounds": 9})
    assert structure(plain, "fedavg", {**values, "local_steps": 1}) == structure(
        plain, "fedavg", {**values, "local_steps": 5}
    )


def test_what_knows_labels_only_takes_the_mean_over_random_configurations() -> None:
    one = study()
    usual = usual_budget(one, one.methods[0])
    assert 100 < usual.last_round < 400
    found = estimate(one.to_json())
    assert (found.trials, found.rounds, found.rests_on[0][:7]) == (56, None, "trials:")
    assert StoredSpec(one.to_json()).budget_of("fedavg").amount == 60_000
    assert one.outlook()[0] == "Rounds within 60,000 examples: fedavg 30 to 600."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": {"trials_per_method": 8}}, "budget.rounds: must be given, or examples, tokens or client_gradients"),
        ({"budget": {**BUDGET, "rounds": 5}}, "budget.examples: must be left out beside rounds"),
        (
            {"budget": {**BUDGET, "examples": 1_999}},
            "budget.examples: must leave room for a round of fedavg, got 2,000",
        ),
        ({"budget": {"trials_per_method": 8, "tokens": 10**9}}, "budget.tokens: must be a task of tokens"),
        ({"budget": {**BUDGET, "rungs": [10, 20]}}, "budget.rungs: must be at least a round apart in every trial"),
        ({"budget": {**BUDGET, "rungs": "auto"}, "eval_every": 5}, "budget.rungs: must not begin before the first"),
        ({"methods": [{"name": "fedavg", "space": STEPS, "rounds": 5}]}, "methods[0].rounds: must be left out with"),
        (
            {"budget": {**BUDGET, "examples": 0}, "seed": -1},
            "budget.examples: must be at least 1, got examples=0\nseed:",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        study(**changes).check()
    assert str(caught.value).startswith(message)


def test_a_method_that_does_not_say_what_its_clients_compute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers.REGISTRIES["method"]()["fedprox"], "round_gradients", None)
    methods = [{"name": "fedavg", "space": STEPS}, {"name": "fedprox", "space": {**STEPS, "prox": 0.1}}]
    with pytest.raises(InvalidSpec, match=r"^methods\[1\]\.name: must be a method that defines round_gradients"):
        study(methods=methods).check()


def test_few_evaluations_get_a_remark() -> None:
    said = study(budget={**BUDGET, "examples": 40_000}).check()
    assert said[0] == (
        "budget.examples: trials of fedavg have 20 to 400 rounds, some with only 20 evaluations: give more examples or "
        "smaller sizes, so that curves have at least 30 points"
    )
    assert not any(line.startswith("budget") for line in study().check())
    assert "evaluate more often" in study(eval_every=2).check()[0]


def test_the_budget_in_words() -> None:
    assert Budget(trials_per_method=8, rounds=2000).trial_text == "2000 rounds"
    assert Budget(trials_per_method=8, client_gradients=10**6).trial_text == "1,000,000 client gradients"
