"""An evaluation on held-out examples: its measures, and the weights of examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.models._measures import ByClient, Columns, Everything, over_clients
from trainers.models._targets import ClassTargets
from trainers.problem import Examples
from trainers.target_kinds import KINDS, POPULATIONS, REPORTS, TEST, is_per_client, measure_of, validating

Compute = Callable[[Tensor, Tensor, Sequence[str]], Columns]
"""(inputs, targets, names) of some examples -> columns of these names, (T, examples) each."""


class Evaluation:
    """The measures of an evaluation on test examples.

    Args:
        kind: what the targets are.
        reports: reports of the trial; only those in `REPORTS` whose measures the kind has are computed.
    """

    def __init__(self, kind: ClassTargets, reports: Collection[str]) -> None:
        self._kind = kind
        self._always = [name for name in KINDS[kind.name].measures if name in kind.measures]
        self._reports = [report for report in reports if report in REPORTS and measure_of(report) in kind.measures]

    def metrics(
        self, test: Examples, held: tuple[Tensor, Tensor], drawn: NDArray[np.int64] | None, compute: Compute
    ) -> dict[str, Tensor]:
        """The metrics, (T,) each; a single validation client gives no metrics by client.

        Args:
            test: the test examples, then those for validation.
            held: (examples, ...) their inputs and targets on the device.
            drawn: indices of the test clients to measure; None is all of them.
            compute: computes the columns.
        """
        (inputs, targets), offsets, sizes = held, test.offsets, test.sizes
        central, tests, people = test.central, test.tests, test.people
        if drawn is not None:
            rows, offsets, sizes = _sampled(test, drawn)
            inputs, targets = inputs[rows], targets[rows]
            central, tests, people = None if central is None else central[rows.numpy()], None, None
        names = (*self._always, *map(measure_of, self._reports))
        needed = dict.fromkeys(column for name in names for column in self._kind.measures[name].columns)
        columns, metrics = compute(inputs, targets, tuple(needed)), {}
        if tests is not None:
            first = int(offsets[tests])
            validated = {name: values[:, first:] for name, values in columns.items()}
            clients = ByClient(offsets[tests:] - first, sizes[tests:])
            validation = self._measured(self._kind.validating, validated, clients if clients.count > 1 else None)
            metrics = {validating(name): values for name, values in validation.items()}
            columns = {name: values[:, :first] for name, values in columns.items()}
            offsets, sizes, central = offsets[:tests], sizes[:tests], None if central is None else central[:first]
        return metrics | self._measured(self._kind, columns, ByClient(offsets[:people], sizes[:people]), central)

    def _measured(
        self,
        kind: ClassTargets,
        columns: Columns,
        clients: ByClient | None,
        central: NDArray[np.bool_] | None = None,
    ) -> dict[str, Tensor]:
        """The metrics of some examples, named like those of test examples; by client too, if clients are given."""
        measures, everything = kind.measures, Everything()
        reported = [measure_of(report) for report in self._reports if not is_per_client(report)]
        metrics = {f"{TEST}{name}": measures[name].of(columns, everything)[:, 0] for name in (*self._always, *reported)}
        for population, mask in () if central is None else zip(POPULATIONS, (~central, central), strict=True):
            subset = {name: values[:, torch.as_tensor(mask, device=values.device)] for name, values in columns.items()}
            for name in KINDS[kind.name].measures_apart:
                metrics[f"{TEST}{name}_{population}"] = measures[name].of(subset, everything)[:, 0]
        if clients is not None:
            for name in map(measure_of, filter(is_per_client, self._reports)):
                metrics |= over_clients(name, measures[name].of(columns, clients).double())
        return metrics


def row_weights(
    rows: int, offsets: NDArray[np.int64], sizes: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weight of each example in the weighted mean of the clients' mean losses.

    Args:
        rows: number of examples.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.
        weights: (clients,).

    Returns:
        (rows,) weights[client] / sizes[client].
    """
    by_row = np.zeros(rows)
    for offset, size, weight in zip(offsets.tolist(), sizes.tolist(), weights.tolist(), strict=True):
        by_row[offset : offset + size] += weight / size
    return by_row


def _sampled(test: Examples, clients: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """(rows of some test clients, and the offsets and sizes of these clients within the rows).

    Args:
        test: the test examples.
        clients: indices of the clients.
    """
    sizes = test.sizes[clients]
    rows = np.concatenate([test.offsets[client] + np.arange(test.sizes[client]) for client in clients.tolist()])
    return torch.as_tensor(rows), np.cumsum(sizes) - sizes, sizes
