"""Computes all trials of a pack at once with an oracle that takes trials one after another.

Every client of every trial becomes a client of a single trial, client-major, so that the number of operations does not
depend on the number of trials. That pays on accelerators, where operations are large or expensive to start, although
the data of a client are copied for each trial; and wherever trials have batches of their own (Group.trials).
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from trainers.engine.memory import room
from trainers.engine.oracles.oracle import Batch, Group, Oracle, example_weights, replicas


class AllTrials(Oracle):
    """The losses and derivatives of another oracle, of all trials at once.

    Args:
        oracle: computes all clients of a trial at once, whatever their number.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        trials, clients = len(params), batch[-1].stop
        rows = _rows(params, clients)
        losses = [self.oracle.value(rows, piece) for piece in _pieces(batch, trials)]
        return _by_trial(sum(losses[1:], losses[0]), trials)

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products."""
        trials, clients = len(params), batch[-1].stop
        rows, along = _rows(params, clients), _rows(vector, clients)
        products = [self.oracle.hvp(rows, piece, along) for piece in _pieces(batch, trials)]
        return sum(products[1:], products[0]).view(clients, trials, -1).transpose(0, 1)

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        trials, clients = len(params), batch[-1].stop
        rows, sums = _rows(params, clients), total[:, :clients].transpose(0, 1)
        contiguous = sums.is_contiguous()  # all trials, client-major: no copy
        gradients = (
            sums.view(1, clients * trials, -1) if contiguous else replicas(total, 1, clients * trials, total.shape[-1])
        )
        losses = [self.oracle.add_gradient_(rows, piece, gradients, want_loss) for piece in _pieces(batch, trials)]
        if not contiguous:
            sums.add_(gradients.view(sums.shape))
        parts = [loss for loss in losses if loss is not None]
        return _by_trial(sum(parts[1:], parts[0]), trials) if parts else None


def _rows(params: Tensor, clients: int) -> Tensor:
    """(1, M T, P) models of all trials, from (T, M or 1, P); without a copy if they are already client-major."""
    models = params.transpose(0, 1)[:clients]
    return models.expand(clients, -1, -1).reshape(1, clients * len(params), -1)


def _by_trial(values: Tensor, trials: int) -> Tensor:
    """(T, M) values (1, M T)."""
    return values.view(-1, trials).T


def _pieces(batch: Batch, trials: int) -> Iterator[Batch]:
    """The batch with a copy of each client for each trial, cut into pieces of examples that fit the device's memory.

    Batches that trials have of their own are not cut.
    """
    if batch[0].trials > 1:
        yield tuple(_own(group, trials) for group in batch)
        return
    first = next(iter(batch[0].data.values()))
    largest = max(next(iter(group.data.values())).shape[1] for group in batch)
    bytes_of_example = sum(
        trials * len(tensor) * tensor[0, 0].numel() * tensor.element_size()
        for group in batch
        for tensor in group.data.values()
    )
    size = max(1, room(first.device) // max(1, bytes_of_example))
    for start in range(0, largest, size):
        yield tuple(_repeated(group, trials, slice(start, start + size), size >= largest) for group in batch)


def _repeated(group: Group, trials: int, examples: slice, whole: bool) -> Group:
    data = {name: _copies(tensor[:, examples], trials) for name, tensor in group.data.items()}
    weights = group.weights
    if not whole:
        first = next(iter(group.data.values()))
        weights = example_weights(group, first.shape[1], first)[:, examples]
    weights = None if weights is None else _copies(weights, trials)
    return Group(group.start * trials, group.stop * trials, data, weights)


def _copies(rows: Tensor, trials: int) -> Tensor:
    """Repeats each row once per trial."""
    return rows[:, None].expand(-1, trials, *rows.shape[1:]).flatten(0, 1)


def _own(group: Group, trials: int) -> Group:
    """The group's batches of the first trials, each of which becomes a client."""

    def first(rows: Tensor) -> Tensor:
        return rows.view(-1, group.trials, *rows.shape[1:])[:, :trials].flatten(0, 1)

    data = {name: first(rows) for name, rows in group.data.items()}
    weights = None if group.weights is None else first(group.weights)
    return Group(group.start * trials, group.stop * trials, data, weights)
