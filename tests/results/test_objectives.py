"""What the sampler maximises: final quality and speed, with numbers by hand."""

import numpy as np
import pytest

from driftline.errors import InvalidSpec
from driftline.results import objectives

from .samples import curve


def test_speed_is_the_mean_over_the_logarithm_of_the_cost() -> None:
    trial = curve([0.0, 0.4, 1.0], rounds=[0, 1, 10])
    # from round 1 to 10 the quality is 0.4 (the evaluation at 10 only ends the decade)
    assert objectives.speed(trial, "test_accuracy", "rounds") == pytest.approx(0.4)
    later = curve([0.0, 0.4, 1.0, 1.0], rounds=[0, 1, 10, 100])
    assert objectives.speed(later, "test_accuracy", "rounds") == pytest.approx(0.7)


def test_speed_of_a_frozen_trial_is_where_it_began() -> None:
    assert objectives.speed(curve([0.3] * 20), "test_accuracy", "rounds") == pytest.approx(0.3)
    assert objectives.speed(curve([0.3]), "test_accuracy", "rounds") == 0.3


def test_of_equal_curves_the_one_with_cheaper_rounds_is_faster() -> None:
    values = 1 - np.exp(-np.arange(30) / 4)
    cheap, dear = curve(values, gradients=10), curve(values, gradients=500)
    assert objectives.speed(cheap, "test_accuracy", "client_gradients") > objectives.speed(
        dear, "test_accuracy", "client_gradients"
    )
    assert objectives.speed(cheap, "test_accuracy", "rounds") == objectives.speed(dear, "test_accuracy", "rounds")


def test_values_are_larger_when_better_also_for_a_loss() -> None:
    good, bad = (curve(2.0 * rate ** np.arange(20), metric="test_loss") for rate in (0.5, 0.9))
    left, right = (objectives.values(trial, "test_loss", "rounds") for trial in (good, bad))
    assert left["quality"] > right["quality"]
    assert left["speed"] > right["speed"]
    assert left["quality"] == pytest.approx(-2.0 * (0.5**18 + 0.5**19) / 2)


def test_a_metric_that_was_not_reported_is_named() -> None:
    with pytest.raises(InvalidSpec, match=r'got "test_acuracy" \(reported: bytes_down, .*test_accuracy\)'):
        objectives.quality(curve([0.1, 0.2]), "test_acuracy")
    with pytest.raises(
        InvalidSpec, match='client_gradients, examples, tokens, time, seconds, got "byte"; did you mean bytes'
    ):
        objectives.speed(curve([0.1, 0.2]), "test_accuracy", "byte")
    with pytest.raises(InvalidSpec, match="must report wall_seconds for cost=seconds; choose cost=rounds"):
        objectives.speed(curve([0.1, 0.2]), "test_accuracy", "seconds")
