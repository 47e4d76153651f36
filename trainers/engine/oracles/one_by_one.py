"""An oracle for any network that works on one replica after the other, in place on the flat rows.

The parameters of one torch module are pointed at the tensors inside a replica's row, so nothing is copied. Gradients
are added directly to the running sums, and local steps change the models in place, as a plain loop of torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TypeGuard

import torch
from torch import Tensor, nn

from trainers.engine.layout import Layout
from trainers.engine.oracles.oracle import (
    Batch,
    Between,
    Group,
    Oracle,
    client_major,
    example_weights,
    replicas,
    twice_differentiable,
)

Losses = Callable[[Mapping[str, Tensor]], Tensor]
"""Maps one client's data by name to the loss of each example, (examples,), with the module's own parameters."""

_LARGE = 1 << 17  # numbers of an embedding, from which a sparse gradient costs less than a dense one
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
        sparse: whether gradients of large embeddings hold only the rows of a batch.
    """

    separate = True  # the numbers of a replica do not depend on the other replicas
    descends = True
    client_by_client = True

    def __init__(
        self, layout: Layout, module: nn.Module, losses: Losses, examples: int = EXAMPLES, sparse: bool = True
    ) -> None:
        self.layout = layout
        self.losses = losses
        self.examples = examples
        parameters = dict(module.named_parameters())
        self.parameters = [parameters[entry.name] for entry in layout.entries]
        ids = {id(parameter) for parameter in self.parameters}
        embeddings = [layer for layer in module.modules() if _is_large_embedding(layer)]
        self._embeddings = [embedding for embedding in embeddings if sparse and id(embedding.weight) in ids]
        self._settled: list[Tensor] = []  # tensors at which the parameters point for all steps of a client

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.no_grad(), self._bound():
            for group in batch:
                for index, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, index, params, self.examples):
                        losses[trial, group.start + index] += self.losses(data) @ weights
        return losses

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products: gradients of the inner product of gradient and vector."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        with torch.enable_grad(), self._bound(), twice_differentiable():
            for group in batch:
                along, sums = self._tensors(vector, group), self._tensors(total, group)
                for index, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, index, params, self.examples):
                        loss = self.losses(data) @ weights
                        slopes = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
                        products = [(a * b).sum() for a, b in zip(slopes, along[index][trial], strict=True)]
                        bend = torch.autograd.grad(torch.stack(products).sum(), self.parameters, materialize_grads=True)
                        torch._foreach_add_(sums[index][trial], bend)
        return total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.enable_grad(), self._bound(), self._by_rows():
            for group in batch:
                sums = self._tensors(total, group)
                for index, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, index, params, self.examples):
                        loss = self.losses(data) @ weights
                        slopes = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
                        torch._foreach_add_(sums[index][trial], slopes)
                        if want_loss:
                            losses[trial, group.start + index] += loss.detach()
        return losses if want_loss else None

    def descend_(
        self, models: Tensor, batch: Batch, rate: Tensor, between: Between = None, want_loss: bool = False
    ) -> Tensor | None:
        """Subtracts rate times the gradients from the models in place; returns the losses if `want_loss`."""
        losses = models.new_zeros((models.shape[0], batch[-1].stop)) if want_loss else None
        rates = rate.flatten().tolist()
        with torch.enable_grad(), self._by_rows(), nullcontext() if self._settled else self._bound():
            for group in batch:
                clients = [[self._settled]] if self._settled else self._tensors(models, group)
                for index, trials in enumerate(clients):
                    steps = []
                    for trial, tensors in enumerate(trials):
                        if not self._settled:
                            self._bind(tensors)
                        for loss in self._mean_losses(group, index, models):
                            slopes = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
                            steps.append((tensors, slopes, -rates[trial]))
                            if losses is not None:
                                losses[trial, group.start + index] += loss.detach()
                    if between is not None:
                        between(slice(group.start + index, group.start + index + 1))
                    for tensors, slopes, factor in steps:
                        torch._foreach_add_(tensors, slopes, alpha=factor)
        return losses

    def _mean_losses(self, group: Group, index: int, like: Tensor) -> Iterator[Tensor]:
        """Parts that sum to the mean loss of one client, one for each piece of the batch."""
        if group.weights is None and next(iter(group.data.values())).shape[1] <= self.examples:
            yield self.losses({name: tensor[index] for name, tensor in group.data.items()}).mean()
        else:
            for data, weights in pieces(group, index, like, self.examples):
                yield self.losses(data) @ weights

    @contextmanager
    def at(self, models: Tensor) -> Iterator[None]:
        """Points the parameters at the models of one client for all of its steps."""
        with self._bound():
            self._settled = [view[0, 0] for view in self.layout.views(models.detach()).values()]
            self._bind(self._settled)
            try:
                yield
            finally:
                self._settled = []

    def _bind(self, tensors: list[Tensor]) -> None:
        for parameter, tensor in zip(self.parameters, tensors, strict=True):
            parameter.data = tensor

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """Restores the module's own tensors on exit, so that the module keeps no replica alive."""
        originals = [parameter.data for parameter in self.parameters]
        try:
            yield
        finally:
            self._bind(originals)

    @contextmanager
    def _by_rows(self) -> Iterator[None]:
        """Within this context the gradients of large embeddings are sparse; they have no second derivatives."""
        for embedding in self._embeddings:
            embedding.sparse = True
        try:
            yield
        finally:
            for embedding in self._embeddings:
                embedding.sparse = False

    def _replicas(self, params: Tensor, group: Group) -> Iterator[tuple[int, int, list[Tensor]]]:
        """(index in the group, trial, tensors in the order of the layout) of every replica."""
        for index, trials in enumerate(self._tensors(params, group)):
            for trial, tensors in enumerate(trials):
                yield index, trial, tensors

    def _tensors(self, params: Tensor, group: Group) -> list[list[list[Tensor]]]:
        """Views, indexed [client in the group][trial][tensor]."""
        views = self.layout.views(client_major(params, group).detach()).values()
        columns = [[trials.unbind(0) for trials in view.unbind(0)] for view in views]
        clients, trials = group.stop - group.start, params.shape[0]
        return [[[column[index][trial] for column in columns] for trial in range(trials)] for index in range(clients)]


def _is_large_embedding(module: nn.Module) -> TypeGuard[nn.Embedding]:
    """Whether it is an embedding with many numbers, of which a batch uses a few rows."""
    if not isinstance(module, nn.Embedding) or type(module) is not nn.Embedding:
        return False
    plain = not (module.sparse or module.scale_grad_by_freq or module.max_norm)
    return plain and module.weight.numel() >= _LARGE


def pieces(group: Group, index: int, like: Tensor, size: int) -> Iterator[tuple[Data, Tensor]]:
    """(data, weights of the examples) of one client, cut into pieces of bounded size; all weights together sum to 1.

    Args:
        group: the client's group.
        index: index of the client in the group.
        like: a tensor with the type and device of the parameters.
        size: most examples of a piece.
    """
    weights = example_weights(group, next(iter(group.data.values())).shape[1], like)[index]
    for start in range(0, len(weights), size):
        stop = start + size
        yield {name: tensor[index, start:stop] for name, tensor in group.data.items()}, weights[start:stop]
