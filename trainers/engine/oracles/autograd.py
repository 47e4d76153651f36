"""The reference oracle: one replica after the other through autograd. Slow, and correct for any model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.oracles.oracle import (
    Batch,
    Group,
    Oracle,
    client_major,
    example_weights,
    replicas,
    twice_differentiable,
)

Losses = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]
"""Maps a model's tensors by name and one client's data by name to the loss of each example, (examples,)."""


class Autograd(Oracle):
    """Losses and derivatives of one replica at a time.

    Args:
        layout: layout of the parameters.
        losses: loss of each example, differentiable.
    """

    reference = True  # used only if a plan names it or the model has no other oracle

    def __init__(self, layout: Layout, losses: Losses) -> None:
        self.layout = layout
        self.losses = losses

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = params.new_empty((params.shape[0], batch[-1].stop))
        for group in batch:
            for index, trial, row, weights, data in self._replicas(params, group):
                losses[trial, group.start + index] = (self.losses(self.layout.views(row), data) * weights).sum()
        return losses

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        for group in batch:
            sums, along = client_major(total, group), client_major(vector, group)
            for index, trial, row, weights, data in self._replicas(params, group):
                leaves = {name: view.clone().requires_grad_() for name, view in self.layout.views(row).items()}
                with twice_differentiable():
                    loss = (self.losses(leaves, data) * weights).sum()
                slopes = torch.autograd.grad(loss, list(leaves.values()), create_graph=True, materialize_grads=True)
                directions = self.layout.views(along[index, trial]).values()
                slope = torch.stack([(a * b).sum() for a, b in zip(slopes, directions, strict=True)]).sum()
                self._add(sums[index, trial], torch.autograd.grad(slope, list(leaves.values()), materialize_grads=True))
        return total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        losses = params.new_empty((params.shape[0], batch[-1].stop))
        for group in batch:
            sums = client_major(total, group)
            for index, trial, row, weights, data in self._replicas(params, group):
                leaves = {name: view.clone().requires_grad_() for name, view in self.layout.views(row).items()}
                loss = (self.losses(leaves, data) * weights).sum()
                self._add(sums[index, trial], torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True))
                losses[trial, group.start + index] = loss.detach()
        return losses if want_loss else None

    def _add(self, row: Tensor, gradients: tuple[Tensor, ...]) -> None:
        for view, gradient in zip(self.layout.views(row).values(), gradients, strict=True):
            view.add_(gradient)

    def _replicas(self, params: Tensor, group: Group) -> list[tuple[int, int, Tensor, Tensor, Mapping[str, Tensor]]]:
        """(index in the group, trial, model, weights of the examples, data) of every replica."""
        models = client_major(params, group)
        examples = next(iter(group.data.values())).shape[1]
        weights = example_weights(group, examples, params)
        return [
            (
                index,
                trial,
                models[index, trial],
                weights[index],
                {name: tensor[index] for name, tensor in group.data.items()},
            )
            for index in range(models.shape[0])
            for trial in range(models.shape[1])
        ]
