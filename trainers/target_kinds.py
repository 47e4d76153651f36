"""The kinds of targets and the metrics of each kind: one table for tasks, models, reports and documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["classes", "numbers", "tags", "tokens", "pairs"]

STATISTICS = ("mean", "std", *(f"p{percent}" for percent in range(10, 100, 10)), "worst")
"""Statistics of a measure over held-out clients with equal weights: mean, deviation, deciles and the worst client."""

RISING = frozenset({"accuracy", "macro_f1", "auc", "precision_at_k", "recall_at_k", "micro_f1"})
"""Measures of which higher values are better; of the others, lower values are."""

POPULATIONS = ("federated", "central")
"""The clients' and the server's population, in a task whose server has classes or data of its own."""

TEST, VALIDATION = "test_", "validation_"
"""Prefixes of the metrics on test examples, for reports, and on validation examples, for choosing configurations."""

_CLIENT, _ADAPTED = "client_", "adapted_"


@dataclass(frozen=True)
class TargetKind:
    """One kind of targets.

    Args:
        examples: what such examples are called in errors.
        measures: of every evaluation on test examples; "loss" is the metric test_loss.
        on_demand: further measures, which `report` of a trial asks for by name.
        per_client: measures whose distribution over held-out clients `report` asks for, as "client_loss".
    """

    examples: str
    measures: tuple[str, ...]
    on_demand: tuple[str, ...]
    per_client: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of every evaluation on test examples."""
        return tuple(f"{TEST}{measure}" for measure in self.measures)

    @property
    def measures_apart(self) -> tuple[str, ...]:
        """The measures of each population; without bits_per_byte, which counts the bytes of all test examples."""
        return tuple(measure for measure in self.measures if measure != "bits_per_byte")

    @property
    def metrics_apart(self) -> tuple[str, ...]:
        """The metrics of each population."""
        return tuple(f"{TEST}{measure}_{population}" for measure in self.measures_apart for population in POPULATIONS)


KINDS: Mapping[Kind, TargetKind] = {
    "classes": TargetKind(
        "labelled examples", ("loss", "accuracy"), ("macro_f1", "auc"), ("loss", "accuracy", "macro_f1", "auc")
    ),
    "numbers": TargetKind("numbers", ("loss",), (), ("loss",)),
    "tags": TargetKind(
        "tags",
        ("loss", "precision_at_k", "recall_at_k", "micro_f1"),
        (),
        ("loss", "precision_at_k", "recall_at_k", "micro_f1"),
    ),
    "tokens": TargetKind(
        "tokens", ("loss", "accuracy", "perplexity", "bits_per_byte"), (), ("loss", "accuracy", "perplexity")
    ),
    "pairs": TargetKind("pairs", ("loss", "recall_at_k"), (), ("loss", "recall_at_k")),
}


def _reports() -> dict[str, tuple[str, ...]]:
    reports: dict[str, tuple[str, ...]] = {}
    for kind in KINDS.values():
        reports |= {name: (f"test_{name}",) for name in kind.on_demand}
        reports |= {
            f"{_CLIENT}{name}": tuple(f"{_CLIENT}{name}_{what}" for what in STATISTICS) for name in kind.per_client
        }
    return reports


REPORTS: Mapping[str, tuple[str, ...]] = _reports()
"""Report on test examples that models compute -> its metrics."""

_OF_CLIENTS = frozenset(name for names in REPORTS.values() for name in names if name.startswith(_CLIENT))


def validating(metric: str) -> str:
    """The metric on validation examples that corresponds to a metric on test examples.

    Examples:
        >>> validating("test_loss"), validating("client_loss_worst")
        ('validation_loss', 'validation_client_loss_worst')
    """
    return VALIDATION + metric.removeprefix(TEST)


def reporting(metric: str) -> str | None:
    """The metric on test examples that corresponds to one on validation examples; None for other metrics.

    Examples:
        >>> reporting("validation_loss"), reporting("validation_client_loss_worst"), reporting("test_loss")
        ('test_loss', 'client_loss_worst', None)
    """
    if not metric.startswith(VALIDATION):
        return None
    name = metric.removeprefix(VALIDATION)
    return name if name in _OF_CLIENTS else TEST + name


def is_of_test(metric: str) -> bool:
    """Whether a metric is measured on test examples: on all, by client, or after adaptation.

    Examples:
        >>> is_of_test("client_loss_worst"), is_of_test("validation_loss"), is_of_test("train_loss")
        (True, False, False)
    """
    return metric.startswith((TEST, _ADAPTED)) or metric in _OF_CLIENTS


def measure_of(report: str) -> str:
    """The measure that a report of `REPORTS` is about: "loss" of "client_loss"."""
    return report.removeprefix(_CLIENT)


def is_per_client(report: str) -> bool:
    """Whether a report of `REPORTS` is the distribution of a measure over clients."""
    return report.startswith(_CLIENT)
