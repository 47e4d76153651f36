"""What `validate` says about a study before it runs."""

import pytest

from driftline.study.chance import nothing_random
from driftline.study.outlook import SHARE, evaluation_share
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from trainers.run import run

BUDGET = {"trials_per_method": 8, "rounds": 100}
STUDY = {
    "name": "seen-before",
    "task": {"name": "digits", "clients": 10, "partition": "iid"},
    "methods": [{"name": "fedavg", "space": {"client_lr": 0.1, "server_lr": 0.5, "local_steps": {"choice": [1, 50]}}}],
    "clients_per_round": 10,
    "batch_size": 100,
    "budget": BUDGET,
}
FIXED = {"client_lr": 0.1, "server_lr": 0.5, "local_steps": 1}
QUADRATIC = {"name": "quadratic", "problem": "two_clients"}


def evaluated(**changes: object) -> str:
    return next(line for line in Study.from_json(STUDY | changes).outlook() if "evaluated" in line)


def test_the_grid_is_shown_with_its_share_of_the_time() -> None:
    evaluations, gradients = 2 * 63 * 359, 100 * 10 * 100 * (1 + 50)
    share = 100 * evaluations / (evaluations + 3 * gradients)
    assert evaluated() == (
        "Each trial is evaluated 63 times, after every round to 40, then in steps of 5 % (42, 44, 46, ...): "
        f"about {share:.2g} % of the time."
    )


def test_branches_are_announced_for_the_labels_that_have_them() -> None:
    schedule = {"name": "plateau", "space": {"window": {"int": [2, 5]}}}
    methods = [*STUDY["methods"], {**STUDY["methods"][0], "label": "decaying", "schedule": schedule}]
    lines = Study.from_json({**STUDY, "methods": methods, "budget": BUDGET | {"branches": 4}}).outlook()
    assert (
        "Each configuration of decaying is tried with 4 settings of its schedule, which are trained together until "
        "their rates part."
    ) in lines


@pytest.mark.parametrize(
    ("every", "rounds", "words"),
    [
        (5, 100, "every 5 rounds and after the last (costs are known to 5 rounds)"),
        (1, 100, "after every round"),
        ("auto", 40, "after every round"),
    ],
)
def test_the_grid_in_words(every: object, rounds: int, words: str) -> None:
    budget = {"trials_per_method": 2, "rounds": rounds}
    assert evaluated(eval_every=every, budget=budget).startswith(f"Each trial is evaluated {words}: ")


def test_evaluations_that_take_long_get_a_remark() -> None:
    cheap = {"client_lr": 0.1, "server_lr": 0.5, "local_steps": 1}
    dear = Study.from_json(
        STUDY | {"batch_size": 20, "budget": BUDGET, "methods": [{"name": "fedavg", "space": cheap}]}
    )
    share = evaluation_share(dear)
    assert share > SHARE
    (remark,) = dear.check()
    expected = f"eval_every: evaluations take about {100 * share:.0f} % of the time: evaluate less often to save time"
    assert remark == expected
    assert Study.from_json(STUDY).check() == []


def test_closed_forms_cost_nothing_to_evaluate() -> None:
    assert evaluated(task=QUADRATIC, clients_per_round=None, batch_size=None).endswith("about 0 % of the time.")


TWO = {"methods": [{"name": "fedavg"}, {"name": "fedprox"}]}


def claims(**changes: object) -> list[str]:
    return [line for line in Study.from_json(STUDY | TWO | changes).outlook() if line.startswith("Claims: ")]


def test_a_budget_says_what_it_can_claim() -> None:
    (few,) = claims(budget=BUDGET | {"seeds": 3})
    assert few.startswith("Claims: compare can judge the configurations found with at least 6 seeds, not with 3 (")
    assert few.endswith(
        "It cannot judge the methods themselves: that needs 6 independent searches, not one (budget.searches)."
    )
    (enough,) = claims()
    assert "the configurations found over 6 seeds." in enough
    (both,) = claims(budget=BUDGET | {"trials_per_method": 48, "searches": 6})
    assert both.endswith("over 6 seeds. It can judge the methods themselves over 6 independent searches.")
    assert claims(methods=[{"name": "fedavg"}]) == []
    (none,) = claims(budget=BUDGET | {"trials_per_method": 48, "searches": 6, "seeds": 0})
    assert none == (
        "Claims: with seeds: 0 the search trials are the result, and compare gives no verdict (budget.seeds)."
    )


def test_seconds_get_a_remark_and_no_claim() -> None:
    objective = {"quality": "test_accuracy", "cost": "seconds"}
    (remark,) = Study.from_json(STUDY | TWO | {"objective": objective}).check()
    assert remark == (
        "objective.cost: compare gives no verdict, because seconds depend on the machine and its load: "
        "choose rounds, bytes, client_gradients or examples"
    )
    assert claims(objective=objective) == []


def test_where_nothing_is_random_one_run_is_enough() -> None:
    whole = {"clients_per_round": None, "batch_size": None}
    (done,) = claims(**whole)
    assert "exactly, because nothing is random: one run stands for all seeds. It" in done
    assert Study.from_json(STUDY | whole).budget.seeds == 0
    (said,) = claims(**whole, budget=BUDGET | {"seeds": 3})
    assert "one run stands for all seeds; seeds: 0 saves 24 trials of each label" in said


def central(size: object, name: str = "one_way_transfer") -> dict[str, object]:
    return {"name": name, "space": {"client_lr": 0.1, "central_batch_size": size}}


@pytest.mark.parametrize(
    ("changes", "random"),
    [
        ({}, False),
        ({"clients_per_round": 5}, True),
        ({"batch_size": 5}, True),
        ({"methods": ["fedavg", {"name": "fedavg", "label": "own", "batch_size": 5}]}, True),
        ({"methods": [{"name": "fedavg", "clients_per_round": 5}]}, True),
        ({"methods": [{"name": "fedavg", "space": FIXED | {"clients_per_round": {"choice": [None, 5]}}}]}, True),
        ({"methods": [{"name": "fedavg", "space": FIXED | {"batch_size": None}}], "batch_size": 5}, False),
        ({"task": STUDY["task"] | {"model": "mlp"}}, True),  # type: ignore[operator]
        ({"task": STUDY["task"] | {"model": {"name": "softmax"}}}, False),  # type: ignore[operator]
        ({"task": QUADRATIC}, False),
        ({"task": QUADRATIC | {"gradient_noise": 0.1}}, True),
        ({"methods": [{"name": "lookahead"}]}, True),
        ({"evaluation": {"clients": 2}}, True),
        ({"methods": [central(size=None)]}, False),
        ({"methods": [central(size=20)]}, True),
        ({"methods": [central(size={"choice": [None, 20]})]}, True),
        ({"methods": [central(size={"int": [1, 20]}, name="pooled_training")]}, True),
        ({"task": "from_a_package"}, True),
        ({"methods": [{"name": "from_a_package", "space": {}}]}, True),
        ({"methods": [{"name": "fedavg", "server": {"name": "from_a_package", "space": {}}}]}, True),
    ],
)
def test_what_is_random_follows_from_the_document(changes: dict[str, object], random: bool) -> None:
    study = Study.from_json(STUDY | {"clients_per_round": None, "batch_size": None} | changes)
    assert nothing_random(study) != random


def test_trials_of_such_a_study_are_equal_on_all_seeds() -> None:
    study = Study.from_json(STUDY | {"clients_per_round": None, "batch_size": None, "budget": BUDGET | {"rounds": 3}})
    configuration = {"client_lr": 0.1, "server_lr": 0.5, "local_steps": 2}
    one, other = (
        [line["test_loss"] for line in run(trial_document(study, "fedavg", [configuration], seed))] for seed in (1, 2)
    )
    assert one == other
