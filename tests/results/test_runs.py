"""The runs of a configuration on several seeds: quality and cost beyond the last round and after divergence."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.results.runs import common, runs_of

from .samples import curve


def test_a_run_keeps_its_last_value_beyond_its_last_round() -> None:
    short, long = curve([0.1, 0.5, 0.7], seed=1), curve([0.1, 0.4, 0.6, 0.8, 0.9], seed=2)
    runs = runs_of(3, [short, long], "test_accuracy", "rounds")
    assert runs is not None
    assert runs.rounds.tolist() == [1, 2, 3, 4]
    assert runs.quality.tolist() == [[0.5, 0.7, 0.7, 0.7], [0.4, 0.6, 0.8, 0.9]]
    assert runs.start.tolist() == [0.1, 0.1]
    assert runs.diverged.tolist() == [4, 4]


def test_from_its_divergence_on_a_run_has_the_quality_of_the_untrained_model() -> None:
    lost = curve([2.3, 1.0, 0.5, 7.0], metric="test_loss", state="DIVERGED", seed=1)
    runs = runs_of(0, [lost, curve([2.3, 1.0, 0.9, 0.8, 0.7], metric="test_loss", seed=2)], "test_loss", "rounds")
    assert runs is not None
    assert runs.quality[0].tolist() == [1.0, 0.5, 2.3, 2.3]
    assert runs.diverged.tolist() == [2, 4]
    assert (runs.limit([0, 1]), runs.limit([1])) == (2, 4)


def test_a_round_of_divergence_counts_even_if_it_was_not_evaluated() -> None:
    lost = curve([2.3, 1.0, np.nan, np.nan], metric="test_loss", state="DIVERGED", seed=1)
    runs = runs_of(0, [lost], "test_loss", "rounds")
    assert runs is not None
    assert (runs.rounds.tolist(), runs.quality[0].tolist()) == ([1, 3], [1.0, 2.3])


def test_the_cost_goes_on_beyond_a_divergence() -> None:
    lost = curve([2.3, 1.0, 0.5], metric="test_loss", state="DIVERGED", seed=1, gradients=30)
    whole = curve([2.3, 1.0, 0.9, 0.8, 0.7], metric="test_loss", seed=2, gradients=10)
    runs = runs_of(0, [lost, whole], "test_loss", "client_gradients")
    assert runs is not None
    assert runs.cost.tolist() == [[30, 60, 90, 120], [10, 20, 30, 40]]


def test_a_run_that_never_reported_the_metric_is_none() -> None:
    assert runs_of(0, [curve([0.1, 0.2])], "test_loss", "rounds") is None
    assert runs_of(0, [], "test_loss", "rounds") is None


@given(st.dictionaries(st.integers(0, 6), st.sets(st.integers(1, 5), min_size=1), max_size=6))
def test_all_reported_configurations_have_ended_on_all_reported_seeds(ended: dict[int, set[int]]) -> None:
    seeds, numbers = common({number: dict.fromkeys(found) for number, found in ended.items()})
    assert all(set(seeds) <= ended[number] for number in numbers)
    for number in ended:
        assert (number in numbers) == (set(seeds) <= ended[number])
    most = max((len(found) for found in ended.values()), default=0)
    assert len(seeds) * len(numbers) >= most
