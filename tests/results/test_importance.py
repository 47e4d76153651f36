import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator

from driftline.results.document import frontier_document
from driftline.results.importance import BEST, CELLS, divergences, reached, shares, values_of
from driftline.results.scale import Axis
from driftline.results.show.importance_rows import importance_rows, importance_text
from driftline.results.show.page import frontier_html
from driftline.sdk.frontier import Frontier
from tests.results.made_runs import runs
from tests.results.samples import Chosen, curve


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_divergences_are_those_of_optuna(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = 60
    cell, kind, active = generator.integers(CELLS, size=count), generator.integers(4, size=count), np.ones(count, bool)
    active[generator.permutation(count)[:20]] = False
    loss = np.where(active, np.abs(cell - 30) / 10, 1.0) + (kind == 2) + 0.3 * generator.random(count)
    study = optuna.create_study()
    for at in range(count):
        forms = {"kind": CategoricalDistribution([0, 1, 2, 3])} | (
            {"cell": IntDistribution(0, CELLS - 1)} if active[at] else {}
        )
        values = {"kind": int(kind[at]), "cell": int(cell[at])}
        study.add_trial(
            optuna.create_trial(params={name: values[name] for name in forms}, distributions=forms, value=loss[at])
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = PedAnovaImportanceEvaluator(target_quantile=BEST).evaluate(study)
    best = loss <= np.sort(loss)[int(BEST * count) - 1]
    for name, cells, ordered in (("cell", np.where(active, cell, -1), True), ("kind", kind, False)):
        size = 1 + (CELLS if ordered else 4)
        own = np.bincount(cells[best] + 1, minlength=size), np.bincount(cells + 1, minlength=size)
        ours = divergences(own[0][None], own[1], ordered=ordered)[0] * BEST**2
        assert ours == pytest.approx(theirs[name], rel=1e-9)


def drawn(count: int, seed: int) -> list[dict[str, object]]:
    generator = np.random.default_rng(seed)
    return [
        {"rate": 10 ** generator.uniform(-3, 1), "steps": int(generator.integers(1, 50)), "kind": "abc"[kind]}
        for kind in generator.integers(3, size=count).tolist()
    ]


def told(target: np.ndarray, trials: list[dict[str, object]]) -> dict[str, float | None]:
    found = {name: values_of(name, trials, [()] * len(trials)) for name in trials[0]}
    return shares(target, {name: values for name, values in found.items() if values is not None})


def test_shares_are_of_what_matters_and_seldom_of_noise() -> None:
    noise = [told(np.random.default_rng([seed, 1]).random(48), drawn(48, seed)) for seed in range(100)]
    assert 0 < sum(any(share is not None for share in one.values()) for one in noise) <= 10
    trials = drawn(48, 0)
    rate = np.array([np.log10(float(str(trial["rate"]))) for trial in trials])
    kind = np.array([trial["kind"] == "b" for trial in trials])
    assert told(-np.abs(rate), trials) == {"rate": 1.0, "steps": None, "kind": None}
    both = told(-np.abs(rate) + kind, trials)
    assert both["steps"] is None
    assert both["rate"] > 0 < both["kind"]
    assert both["rate"] + both["kind"] == pytest.approx(1)
    assert set(told(-np.abs(rate)[:8], trials[:8]).values()) == {None}, "2 of 8 are the best"
    assert set(told(np.full(48, -np.inf), trials).values()) == {None}, "no trial was paid for"


def test_values_that_are_equal_missing_or_change_nothing_do_not_count() -> None:
    trials = [{"rate": value, "one": 1, "momentum": None, "prox": value} for value in np.linspace(0.1, 1, 20)]
    free = [{"prox"} if at < 19 else set() for at in range(20)]
    assert values_of("rate", trials, free) is not None
    assert [values_of(name, trials, free) for name in ("one", "momentum", "prox")] == [None] * 3


def test_a_trial_reaches_its_best_before_it_diverges() -> None:
    some = [runs(0, [[1, 3, 2, 5]], diverged=np.array([3])), runs(1, [[2, 2, 2, 4]])]
    found = reached(some, Axis(rising=True), np.array([0.5, 1, 2, 4]))
    assert found.tolist() == [[-np.inf, 1, 3, 3], [-np.inf, 2, 2, 4]]


def study(count: int) -> dict[str, object]:
    """At first a large rate helps, in the end a small one; momentum changes nothing where there is one step."""
    generator = np.random.default_rng(5)
    trials = []
    for number in range(count):
        rate, momentum = generator.random(2)
        early, late = rate, 2 - rate
        values = [0, *(early + (late - early) * np.linspace(0, 1, 20) ** 4)]
        trials.append(curve(values, number=number, hyperparameters={"rate": rate, "momentum": momentum, "steps": 1}))
    rules = {"fedavg": {"momentum": [{"steps": 1}]}}
    return frontier_document("made", trials, Chosen(), 20, rules=rules)


def test_results_say_what_matters_at_which_cost_or_that_there_are_too_few_trials() -> None:
    result = study(40)
    (row,) = importance_rows(result)
    assert (row["label"], row["trials"], row["hyperparameter"], row["quality"]) == ("fedavg", 40, "rate", 1.0)
    assert [each["cost"] for each in row["along"]] == [2, 4, 9]
    assert Frontier(result).importance() == [row]
    assert importance_text(result).splitlines()[:2] == [
        "method  hyperparameter  speed  2 rounds  4 rounds  9 rounds  quality",
        "fedavg  rate             1.00      1.00      1.00      1.00     1.00",
    ]
    assert "Which hyperparameters matter" in frontier_html(result)
    few = study(8)
    assert "too few trials to tell (8)" in importance_text(few)
    assert "too few trials to tell (8)" in frontier_html(few)
    same = frontier_document("made", [curve([0, 1])], Chosen(), 1)
    assert importance_text(same) == "No method has a hyperparameter that differs between its trials."
    assert "Which hyperparameters matter" not in frontier_html(same)
