"""An oracle for any network that works on one replica after the other, in place on the flat rows.

The parameters of one torch module are pointed at the tensors inside a replica's row, so nothing is copied, and
gradients are added directly to the running sums. On a CPU this is the fastest oracle for convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

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

Losses = Callable[[Mapping[str, Tensor]], Tensor]
"""Maps one client's data by name to the loss of each example, (examples,), with the module's own parameters."""

EXAMPLES = 512
"""Examples of a client that are computed at once; larger batches are cut into pieces."""

Data = Mapping[str, Tensor]


class Loop(Oracle):
    """Losses and derivatives by autograd, replica by replica.

    Args:
        layout: layout of the parameters.
        module: the torch module that has the parameters.
        losses: loss of each example, computed by the module.
        examples: number of examples of a client that are computed at once.
    """

    separate = True  # the numbers of a replica do not depend on the other replicas

    def __init__(self, layout: Layout, module: nn.Module, losses: Losses, examples: int = EXAMPLES) -> None:
        self.layout = layout
        self.losses = losses
        self.examples = examples
        parameters = dict(module.named_parameters())
        self.parameters = [parameters[entry.name] for entry in layout.entries]

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.no_grad(), self._bound():
            for group in batch:
                for place, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, place, params, self.examples):
                        losses[trial, group.start + place] += self.losses(data) @ weights
        return losses

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """The gradient of the inner product of the gradient and the vector (see Oracle)."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        with torch.enable_grad(), self._bound(), twice_differentiable():
            for group in batch:
                along, held = self._tensors(vector, group), self._tensors(total, group)
                for place, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, place, params, self.examples):
                        loss = self.losses(data) @ weights
                        slopes = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
                        products = [(a * b).sum() for a, b in zip(slopes, along[place][trial], strict=True)]
                        bend = torch.autograd.grad(torch.stack(products).sum(), self.parameters, materialize_grads=True)
                        torch._foreach_add_(held[place][trial], bend)
        return total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.enable_grad(), self._bound():
            for group in batch:
                held = self._tensors(total, group)
                for place, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, place, params, self.examples):
                        loss = self.losses(data) @ weights
                        slopes = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
                        torch._foreach_add_(held[place][trial], slopes)
                        if want_loss:
                            losses[trial, group.start + place] += loss.detach()
        return losses if want_loss else None

    def _bind(self, tensors: list[Tensor]) -> None:
        for parameter, tensor in zip(self.parameters, tensors, strict=True):
            parameter.data = tensor

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """Restores the module's own tensors on exit, so that the module keeps no replica alive."""
        own = [parameter.data for parameter in self.parameters]
        try:
            yield
        finally:
            self._bind(own)

    def _replicas(self, params: Tensor, group: Group) -> Iterator[tuple[int, int, list[Tensor]]]:
        """(index in the group, trial, tensors in the order of the layout) of every replica."""
        for place, trials in enumerate(self._tensors(params, group)):
            for trial, tensors in enumerate(trials):
                yield place, trial, tensors

    def _tensors(self, params: Tensor, group: Group) -> list[list[list[Tensor]]]:
        """Views, indexed [client in the group][trial][tensor]."""
        views = self.layout.views(client_major(params, group).detach()).values()
        columns = [[trials.unbind(0) for trials in view.unbind(0)] for view in views]
        places, trials = group.stop - group.start, params.shape[0]
        return [[[column[place][trial] for column in columns] for trial in range(trials)] for place in range(places)]


def pieces(group: Group, place: int, like: Tensor, size: int) -> Iterator[tuple[Data, Tensor]]:
    """(data, weights of the examples) of one client, cut into pieces of bounded size; all weights together sum to 1.

    Args:
        group: the client's group.
        place: index of the client in the group.
        like: a tensor with the type and device of the parameters.
        size: most examples of a piece.
    """
    weights = example_weights(group, next(iter(group.data.values())).shape[1], like)[place]
    for start in range(0, len(weights), size):
        stop = start + size
        yield {name: held[place, start:stop] for name, held in group.data.items()}, weights[start:stop]
