"""The task tag_prediction has the distributions that its docstring states."""

from typing import Any

import numpy as np
import pytest

from trainers.errors import SpecError
from trainers.registry import tasks


def built(**document: Any) -> tuple[Any, Any]:
    task = tasks()["tag_prediction"]
    settings = task.parse({"name": "tag_prediction", **document}, "task")
    return settings, task.build(settings, "float64")


def everything(problem: Any) -> tuple[Any, Any]:
    parts = (problem.train, problem.test)
    return np.concatenate([part.inputs for part in parts]), np.concatenate([part.targets for part in parts])


def test_bags_are_shares_of_words_and_a_tenth_of_a_client_is_for_testing() -> None:
    settings, problem = built(clients=300, words=30, tags=4, examples=25, length=9)
    bags, _ = everything(problem)
    assert bags.sum(1) == pytest.approx(np.ones(len(bags)))
    sizes = problem.train.sizes + problem.test.sizes
    assert sizes.mean() == pytest.approx(25, abs=1)
    assert sizes.var() == pytest.approx(23, rel=0.25)  # Poisson
    assert problem.train.sizes.tolist() == (9 * sizes // 10).tolist() == settings.examples.tolist()


def test_tags_have_their_shares_and_numbers() -> None:
    """With alike clients, each of a question's 1 to 5 draws is a tag with its share."""
    _, problem = built(clients=60, words=2, tags=5, examples=400, skew=1e6)
    _, tags = everything(problem)
    shares = 1 / np.arange(1, 6) / (1 / np.arange(1, 6)).sum()
    missing = (1 - shares) * (1 - 1.9 / 4 * shares) ** 4  # after 1 draw and a binomial number of 4
    assert tags.mean(0) == pytest.approx(1 - missing, abs=0.01)
    assert tags.sum(1).min() == 1
    assert tags.sum(1).max() == 5


def test_words_come_from_tags_with_probability_own() -> None:
    """A tag has at most 20 words of its own; the others have the shares of all words."""
    words = 1 / np.arange(1, 401) / (1 / np.arange(1, 401)).sum()
    _, none = built(clients=40, words=400, tags=3, examples=100, own=0)
    bags, _ = everything(none)
    assert bags.mean(0) == pytest.approx(words, abs=0.004)
    _, all_own = built(clients=40, words=400, tags=3, examples=100, own=1, skew=1e6)
    bags, tags = everything(all_own)
    alone = [bags[(tags.sum(1) == 1) & tags[:, tag]] for tag in range(3)]
    assert all(0 < (own > 0).any(0).sum() <= 20 for own in alone)
    half = everything(built(clients=40, words=400, tags=3, examples=100, own=0.5, skew=1e6)[1])
    outside = ~np.any([(own > 0).any(0) for own in alone], 0)
    assert half[0][:, outside].sum() / len(half[0]) == pytest.approx(0.5 * words[outside].sum(), rel=0.03)


def test_skewed_clients_have_few_tags() -> None:
    def of_most_frequent(skew: float) -> float:
        _, problem = built(clients=100, words=2, tags=50, examples=60, skew=skew)
        ends = np.cumsum(problem.train.sizes)[:-1]
        return float(np.mean([part.mean(0).max() for part in np.split(problem.train.targets, ends)]))

    assert of_most_frequent(0.01) > 0.8
    assert of_most_frequent(10) < 0.6


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"at": 60}, r"task\.at must be at most 50, the number of tags, got at=60"),
        ({"model": "softmax"}, r"task\.model must be a model of"),
        ({"clients": 100_000, "words": 100_000}, r"task must be smaller: clients x examples x words must be at most"),
        ({"skew": 0}, r"task\.skew must be above 0"),
        ({"topics": 3}, r"unknown key \"topics\" in task"),
    ],
)
def test_bad_documents_are_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        built(**document)
