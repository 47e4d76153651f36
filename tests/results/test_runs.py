"""The runs of a configuration on several seeds: quality and cost beyond the last round and after divergence."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.curves import TrialCurve
from driftline.results.runs import common, count_costs, runs_of, runs_of_all

from .samples import curve


def test_a_run_keeps_its_last_value_beyond_its_last_round() -> None:
    short, long = curve([0.1, 0.5, 0.7], seed=1), curve([0.1, 0.4, 0.6, 0.8, 0.9], seed=2)
    runs = runs_of(3, [short, long], "test_accuracy", "rounds")
    assert runs.rounds.tolist() == [1, 2, 3, 4]
    assert runs.quality.tolist() == [[0.5, 0.7, 0.7, 0.7], [0.4, 0.6, 0.8, 0.9]]
    assert runs.start.tolist() == [0.1, 0.1]
    assert runs.diverged.tolist() == [4, 4]


def test_from_its_divergence_on_a_run_has_the_quality_of_the_untrained_model() -> None:
    lost = curve([2.3, 1.0, 0.5, 7.0], metric="test_loss", state="DIVERGED", seed=1)
    runs = runs_of(0, [lost, curve([2.3, 1.0, 0.9, 0.8, 0.7], metric="test_loss", seed=2)], "test_loss", "rounds")
    assert runs.quality[0].tolist() == [1.0, 0.5, 2.3, 2.3]
    assert runs.diverged.tolist() == [2, 4]
    assert (runs.limit([0, 1]), runs.limit([1])) == (2, 4)


def test_costs_counted_together_are_those_of_each_trial() -> None:
    lengths = (3, 5, 3, 1)
    curves = [curve([0.5] * length, gradients=7 + seed) for seed, length in enumerate(lengths)]
    alone = [replace(each, _cache={}).cost("client_gradients").tolist() for each in curves]
    count_costs(curves, "client_gradients")
    assert [each.cached("client_gradients").tolist() for each in curves] == alone
    assert [len(costs) for costs in alone] == [*lengths]


def test_a_round_of_divergence_counts_even_if_it_was_not_evaluated() -> None:
    lost = curve([2.3, 1.0, np.nan, np.nan], metric="test_loss", state="DIVERGED", seed=1)
    runs = runs_of(0, [lost], "test_loss", "rounds")
    assert (runs.rounds.tolist(), runs.quality[0].tolist()) == ([1, 3], [1.0, 2.3])


def test_the_cost_goes_on_beyond_a_divergence() -> None:
    lost = curve([2.3, 1.0, 0.5], metric="test_loss", state="DIVERGED", seed=1, gradients=30)
    whole = curve([2.3, 1.0, 0.9, 0.8, 0.7], metric="test_loss", seed=2, gradients=10)
    runs = runs_of(0, [lost, whole], "test_loss", "client_gradients")
    assert runs.cost.tolist() == [[30, 60, 90, 120], [10, 20, 30, 40]]


def test_a_run_that_never_reported_the_metric_is_none() -> None:
    assert runs_of(0, [curve([0.1, 0.2])], "test_loss", "rounds") is None
    assert runs_of(0, [], "test_loss", "rounds") is None


@pytest.mark.parametrize("cost", ["rounds", "client_gradients"])
@pytest.mark.parametrize("most", [1, 2, 256])
def test_configurations_computed_together_have_the_bits_of_each_alone(
    cost: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)

    def trial(number: int, seed: int, length: int, state: str) -> TrialCurve:
        values = draw.lognormal(size=length)
        values[1 : length - 1 : 3] = np.nan if number % 3 else values[1 : length - 1 : 3]
        return curve(values, metric="test_loss", state=state, number=number, seed=seed, gradients=number + 7)

    groups = [
        (number, [trial(number, seed, 40 - lost, "DIVERGED" if lost else "COMPLETE") for seed in range(seeds)])
        for number in range(12)
        for seeds, lost in [(1 + number % 2 * 8, 11 * (number % 4 == 3))]
    ]
    groups += [(12, []), (13, [curve([0.5, 0.25])])]
    fresh = [(number, [replace(each, _cache={}) for each in curves]) for number, curves in groups]
    alone = [runs_of(number, curves, "test_loss", cost) for number, curves in fresh]
    monkeypatch.setattr("driftline.results.runs.MOST_TOGETHER", most)
    for found, expected in zip(runs_of_all(groups, "test_loss", cost), alone, strict=True):
        if found is None or expected is None:
            assert found is expected
            continue
        for name in ("configuration", "rounds", "cost", "quality", "start", "diverged"):
            assert np.asarray(getattr(found, name)).tobytes() == np.asarray(getattr(expected, name)).tobytes(), name


@given(st.dictionaries(st.integers(0, 6), st.sets(st.integers(1, 5), min_size=1), max_size=6))
def test_all_reported_configurations_have_ended_on_all_reported_seeds(ended: dict[int, set[int]]) -> None:
    seeds, numbers = common({number: dict.fromkeys(found) for number, found in ended.items()})
    assert all(set(seeds) <= ended[number] for number in numbers)
    for number in ended:
        assert (number in numbers) == (set(seeds) <= ended[number])
    most = max((len(found) for found in ended.values()), default=0)
    assert len(seeds) * len(numbers) >= most
