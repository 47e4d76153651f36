"""Measures of a model on all examples, and on those of each client.

A measure is a function of columns, one value an example, and of groups of examples. All examples are one group, so that
each measure is defined once. Definitions are those of scikit-learn, which the tests compare; groups in which a measure
has no value, such as the AUC of one class, are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.target_kinds import RISING, STATISTICS

Columns = Mapping[str, Tensor]
"""Name -> (T, examples) values."""


class Everything:
    """All examples, as one group."""

    count = 1

    def means(self, values: Tensor) -> Tensor:
        """(T, 1) means of values (T, examples)."""
        return values.mean(1, keepdim=True)

    def sums(self, values: Tensor) -> Tensor:
        """(T, 1) sums."""
        return values.sum(1, keepdim=True)

    def members(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """((T, examples) values of the examples in groups, (examples,) the group of each)."""
        return values, torch.zeros(values.shape[1], dtype=torch.int64, device=values.device)


class ByClient:
    """A group for each client.

    Args:
        offsets: (clients,) first example of each client.
        sizes: (clients,) examples of each client.
    """

    def __init__(self, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.offsets, self.sizes = torch.as_tensor(offsets), torch.as_tensor(sizes)
        self.count = len(sizes)

    def means(self, values: Tensor) -> Tensor:
        """(T, clients) means of values (T, examples), float64."""
        return self.sums(values) / self.sizes.to(values.device)

    def sums(self, values: Tensor) -> Tensor:
        """(T, clients) sums, float64."""
        sums = torch.nn.functional.pad(values.double().cumsum(1), (1, 0))
        starts, lengths = self.offsets.to(values.device), self.sizes.to(values.device)
        return sums[:, starts + lengths] - sums[:, starts]

    def members(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """((T, examples) values of the examples in groups, (examples,) the group of each)."""
        rows, owners = self._rows
        return values[:, rows.to(values.device)], owners.to(values.device)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        owners = torch.repeat_interleave(torch.arange(self.count), self.sizes)
        within = torch.arange(len(owners)) - (self.sizes.cumsum(0) - self.sizes)[owners]
        return self.offsets[owners] + within, owners


Groups = Everything | ByClient


@dataclass(frozen=True)
class Measure:
    """One measure.

    Args:
        columns: columns that the measure needs.
        of: maps columns and groups to values (T, groups).
    """

    columns: tuple[str, ...]
    of: Callable[[Columns, Groups], Tensor]


def mean_of(column: str) -> Measure:
    """The mean of a column."""
    return Measure((column,), lambda columns, groups: groups.means(columns[column]))


def ratio_of(top: str, bottom: str) -> Measure:
    """The sum of one column divided by the sum of another; 0 / 0 has no value."""

    def of(columns: Columns, groups: Groups) -> Tensor:
        return groups.sums(columns[top]) / groups.sums(columns[bottom])

    return Measure((top, bottom), of)


def perplexity(loss: Measure) -> Measure:
    """The exponential of a loss."""
    return Measure(loss.columns, lambda columns, groups: loss.of(columns, groups).exp())


def bits_per_byte(bytes_per_token: float) -> Measure:
    """The mean loss, in bits for each byte of text."""
    scale = math.log(2) * bytes_per_token
    return Measure(("loss",), lambda columns, groups: groups.means(columns["loss"]) / scale)


def macro_f1() -> Measure:
    """The mean of the F1 scores of all classes that are predicted or true for an example of the group."""

    def of(columns: Columns, groups: Groups) -> Tensor:
        predicted, owners = groups.members(columns["predicted"])
        targets, _ = groups.members(columns["class"])
        classes = 1 + int(max(predicted.max(), targets.max()))

        def counts(numbers: Tensor, weights: Tensor | None = None) -> Tensor:
            places = owners * classes + numbers.long()
            return torch.bincount(places, weights, groups.count * classes).view(groups.count, classes).double()

        rows = []
        for guess, true in zip(predicted, targets, strict=True):
            hits = counts(true, (guess == true).double())
            either = counts(guess) + counts(true)
            scores = torch.where(either > 0, 2 * hits / either.clamp(min=1), 0.0)
            rows.append(scores.sum(1) / (either > 0).sum(1))
        return torch.stack(rows)

    return Measure(("predicted", "class"), of)


def auc() -> Measure:
    """The area under the ROC curve: the share of pairs of both classes in a group that are in the right order."""

    def of(columns: Columns, groups: Groups) -> Tensor:
        margins, owners = groups.members(columns["margin"])
        targets, _ = groups.members(columns["class"])
        return torch.stack([_areas(*pair, owners, groups.count) for pair in zip(margins, targets, strict=True)])

    return Measure(("margin", "class"), of)


def _areas(margins: Tensor, classes: Tensor, owners: Tensor, groups: int) -> Tensor:
    """(groups,) areas by the ranks of the second class's margins; equal margins share their mean rank."""
    order = margins.argsort(stable=True)
    order = order[owners[order].argsort(stable=True)]
    margins, owners, positive = margins[order], owners[order], classes[order].double()
    runs = torch.ones_like(owners, dtype=torch.bool)
    runs[1:] = (margins[1:] != margins[:-1]) | (owners[1:] != owners[:-1])
    run = runs.cumsum(0) - 1
    lengths = torch.bincount(run)
    first = lengths.cumsum(0) - lengths
    ranks = (first + (lengths + 1) / 2)[run]  # from 1, in all groups
    members = torch.bincount(owners, minlength=groups)
    ranks = ranks - (members.cumsum(0) - members)[owners]
    hits = torch.bincount(owners, positive, groups)
    summed = torch.bincount(owners, ranks * positive, groups)
    return (summed - hits * (hits + 1) / 2) / (hits * (members - hits))


def over_clients(measure: str, values: Tensor) -> dict[str, Tensor]:
    """Statistics of a measure over clients, which have equal weight, (T,) each.

    Args:
        measure: name of the measure.
        values: (T, clients) float64. Clients for whom a measure of `RISING` has no value, NaN, are left out; a loss
            that is NaN makes all statistics NaN.

    Returns:
        client_MEASURE_mean, _std (population standard deviation), _p10 .. _p90 (percentiles, linearly interpolated)
        and _worst.
    """
    rises = measure in RISING
    rows = [_statistics(row[~row.isnan()] if rises else row, rises) for row in values]
    return {f"client_{measure}_{what}": torch.stack([row[what] for row in rows]) for what in STATISTICS}


def _statistics(values: Tensor, rises: bool) -> dict[str, Tensor]:
    if not len(values):
        return dict.fromkeys(STATISTICS, values.new_tensor(math.nan))
    statistics = {
        "mean": values.mean(),
        "std": values.std(correction=0),
        "worst": values.min() if rises else values.max(),
    }
    return {
        what: torch.quantile(values, int(what[1:]) / 100) if what.startswith("p") else statistics[what]
        for what in STATISTICS
    }
