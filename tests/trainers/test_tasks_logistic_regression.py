"""The task logistic_regression has the distributions of Synthetic(alpha, beta)."""

from typing import Any

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.problem import Examples
from trainers.registry import tasks


def built(**document: Any) -> tuple[Any, Any]:
    task = tasks()["logistic_regression"]
    settings = task.parse({"name": "logistic_regression", **document}, "task")
    return settings, task.build(settings, "float64")


def clients_of(examples: Examples) -> list[tuple[Any, Any]]:
    ends = np.cumsum(examples.sizes)[:-1]
    return list(zip(np.split(examples.inputs, ends), np.split(examples.targets, ends), strict=True))


ALIKE = {"size_mean": 0, "size_spread": 0, "least_examples": 400}  # and exp(0) more


def test_sizes_are_log_normal_above_the_least_and_a_tenth_is_for_testing() -> None:
    settings, problem = built(clients=2000, size_mean=2, size_spread=0.5, least_examples=20)
    sizes = problem.train.sizes + problem.test.sizes
    logarithms = np.log(sizes - 20 + 0.5)  # sizes are rounded down
    assert np.median(logarithms) == pytest.approx(2, abs=0.05)
    assert logarithms.std() == pytest.approx(0.5, abs=0.05)
    assert problem.train.sizes.tolist() == (9 * sizes // 10).tolist()
    assert settings.examples.tolist() == problem.train.sizes.tolist()


def test_inputs_have_the_variances_and_spreads_of_the_paper() -> None:
    _, problem = built(clients=300, input_spread=3, **ALIKE)
    inputs = [x for x, _ in clients_of(problem.train)]
    within = np.mean([x.var(0, ddof=1) for x in inputs], 0)
    assert within == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.02)
    means = np.stack([x.mean(0) for x in inputs])
    assert means.mean(1).std() == pytest.approx(3, rel=0.15)  # B_i
    assert (means - means.mean(1, keepdims=True)).std() == pytest.approx(1, rel=0.03)  # v_i - B_i


def test_classes_are_of_the_largest_score() -> None:
    """A linear model of each client alone fits its classes, and one for all clients only if they are iid."""
    for iid, fits in ((True, True), (False, False)):
        _, problem = built(clients=40, iid=iid, **ALIKE)
        (first, classes), *others = clients_of(problem.train)
        x = np.concatenate([first, *(x for x, _ in others)] if iid else [first])
        y = np.concatenate([classes, *(y for _, y in others)] if iid else [classes])
        agree = np.mean([_scores(x, y, other) == other_classes for other, other_classes in others[:10]])
        assert np.mean(_scores(x, y, first) == classes) > 0.7
        assert (agree > 0.65) == fits


def _scores(x: Any, y: Any, at: Any) -> Any:
    """Classes at these points of a least-squares fit of one-hot classes."""
    with_ones, at_with_ones = (np.column_stack([rows, np.ones(len(rows))]) for rows in (x, at))
    weights = np.linalg.lstsq(with_ones, np.eye(10)[y], rcond=None)[0]
    return (at_with_ones @ weights).argmax(1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"iid": True, "input_spread": 1}, r"^task\.input_spread must be left out with iid, whose .* got 1"),
        ({"clients": 10**6}, r"^task must be smaller: examples x 60 must be at most 100000000, got \d+"),
        ({"clients": 2000, "size_mean": 8}, r"^task must be smaller: examples x 60 must be"),
        ({"model": "lstm"}, r"^task\.model must be a model of "),
    ],
)
def test_a_wrong_document_is_one_clear_line(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        built(**document)
