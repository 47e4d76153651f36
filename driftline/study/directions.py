"""Which way a metric is better: losses fall, accuracies rise.

A metric rises if a word of its name is in `RISING` and none is in `FALLING`; every other metric falls. So
``test_accuracy`` and ``recall@10`` rise; ``train_loss``, ``distance`` and ``perplexity`` fall. If your own task reports
BLEU, name the metric ``test_bleu_score``: ``test_bleu`` would fall.
"""

from __future__ import annotations

import re
from typing import Literal

Direction = Literal["falls", "rises"]

RISING: frozenset[str] = frozenset(
    {
        "accuracy", "acc", "auc", "auroc", "score", "recall", "precision", "f1", "r2", "map", "mrr", "ndcg", "iou",
        "reward", "likelihood", "similarity", "hits",
    }
)  # fmt: skip
"""Words that mark a metric as rising."""

FALLING: frozenset[str] = frozenset({"std", "loss", "error"})
"""Words that mark a metric as falling, whatever its other words: the deviation of accuracies, an accuracy loss."""


class Metric(str):
    """The name of a metric whose direction the study declares, for metrics of a user's own program.

    Args:
        name: The name.
        direction: Which way it gets better.
    """

    direction: Direction

    def __new__(cls, name: str, direction: Direction) -> Metric:
        """The name with its direction."""
        metric = super().__new__(cls, name)
        metric.direction = direction
        return metric

    def __reduce__(self) -> tuple[type[Metric], tuple[str, Direction]]:
        return Metric, (str(self), self.direction)


def direction(metric: str) -> Direction:
    """Whether a better model has a smaller or a larger value of this metric.

    Args:
        metric: Its name, as trials report it.

    Returns:
        What its study declares; otherwise "rises" if a word of the name is in `RISING` and none in `FALLING`.

    Examples:
        >>> direction("test_accuracy"), direction("recall@10"), direction("train_loss"), direction("distance")
        ('rises', 'rises', 'falls', 'falls')
        >>> direction("client_accuracy_worst"), direction("client_accuracy_std"), direction("client_loss_worst")
        ('rises', 'falls', 'falls')
        >>> direction("validation_client_accuracy_worst")
        'rises'
    """
    if isinstance(metric, Metric):
        return metric.direction
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    return "rises" if words & RISING and not words & FALLING else "falls"


def sign(metric: str) -> float:
    """1.0 for a metric that rises, -1.0 for one that falls: sign times metric is larger when better.

    Examples:
        >>> sign("test_accuracy"), sign("test_loss")
        (1.0, -1.0)
    """
    return 1.0 if direction(metric) == "rises" else -1.0
