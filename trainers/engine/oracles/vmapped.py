"""An oracle for any network that works on all replicas at once, by torch.func.vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.oracles.autograd import Losses
from trainers.engine.oracles.oracle import (
    Batch,
    Group,
    Oracle,
    client_major,
    example_weights,
    replicas,
    twice_differentiable,
)

EXAMPLES = 4096
"""Examples of all replicas together that are computed at once."""

Data = Mapping[str, Tensor]
Tensors = Mapping[str, Tensor]


class Vmap(Oracle):
    """Losses and derivatives of all trials and clients in single calls: few, large kernels.

    On a CPU it is used only if a plan names it: there `one_by_one` is at least as fast for all but the smallest
    networks, and the first call of vmap spends seconds on imports.

    Args:
        layout: layout of the parameters.
        losses: loss of each example, as a function of the parameters.
        examples: gives the number of examples of all replicas together that are computed at once.
    """

    accelerators_only = True

    def __init__(self, layout: Layout, losses: Losses, examples: Callable[[], int] = lambda: EXAMPLES) -> None:
        self.layout = layout
        self.examples = examples

        def total(tensors: Tensors, data: Data, weights: Tensor) -> Tensor:
            return losses(tensors, data) @ weights

        def bend(tensors: Tensors, along: Tensors, data: Data, weights: Tensor) -> Tensors:
            def slope(point: Tensors) -> Tensor:
                slopes = torch.func.grad(total)(point, data, weights)
                return torch.stack([(slopes[name] * along[name]).sum() for name in slopes]).sum()

            product: Tensors = torch.func.grad(slope)(tensors)
            return product

        self._total = _over_replicas(total, 1)
        self._slopes = _over_replicas(torch.func.grad_and_value(total), 1)
        self._bend = _over_replicas(bend, 2)

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.no_grad():
            for group in batch:
                models = self._tensors(params, group)
                for data, weights in pieces(group, params, self.examples()):
                    losses[:, group.start : group.stop] += self._total(models, data, weights).T
        return losses

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        for group in batch:
            models, along = self._tensors(params, group), self._tensors(vector, group)
            for data, weights in pieces(group, params, self.examples()):
                with twice_differentiable():
                    bend = self._bend(models, along, data, weights)
                self._add(bend, total, group)
        return total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        for group in batch:
            models = self._tensors(params, group)
            for data, weights in pieces(group, params, self.examples()):
                slopes, loss = self._slopes(models, data, weights)
                self._add(slopes, total, group)
                losses[:, group.start : group.stop] += loss.T
        return losses if want_loss else None

    def _add(self, slopes: Tensors, total: Tensor, group: Group) -> None:
        for name, view in self._tensors(total, group).items():
            view.add_(slopes[name])

    def _tensors(self, params: Tensor, group: Group) -> dict[str, Tensor]:
        return self.layout.views(client_major(params, group).detach())


def pieces(group: Group, params: Tensor, examples: int) -> Iterator[tuple[Data, Tensor]]:
    """(data, weights of the examples) of all clients of a group, cut into pieces of bounded size.

    Args:
        group: the clients.
        params: (T, M or 1, P).
        examples: most examples of a piece, of all replicas together.
    """
    weights = example_weights(group, next(iter(group.data.values())).shape[1], params)
    size = max(1, examples // (weights.shape[0] * params.shape[0]))
    for start in range(0, weights.shape[1], size):
        stop = start + size
        yield {name: tensor[:, start:stop] for name, tensor in group.data.items()}, weights[:, start:stop]


def _over_replicas(function: Any, models: int) -> Any:
    """Maps a function of models, data and weights over trials (which share the data) and clients."""
    trials = torch.func.vmap(function, in_dims=(*[0] * models, None, None))
    return torch.func.vmap(trials, in_dims=(*[0] * models, 0, 0))
