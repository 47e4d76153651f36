"""The oracle of any network that works one replica after the other, in place on the flat rows.

The parameters of one torch module are pointed at the tensors inside a replica's row, so nothing is copied, and
gradients are added to the running sums at once. On a CPU this is the fastest way for convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainers.engine.layout import Layout
from trainers.engine.oracles.oracle import Batch, Group, Oracle, client_major, example_weights, replicas

Losses = Callable[[Mapping[str, Tensor]], Tensor]
"""One client's data by name to the loss of each example, (examples,), with the module's own parameters."""

_EXAMPLES = 512  # of a client, run at once; larger batches are cut into pieces

Data = Mapping[str, Tensor]


class Loop(Oracle):
    """Losses and derivatives by autograd, replica by replica.

    Args:
        layout: of the parameters.
        module: whose parameters they are.
        losses: of examples, by the module.
    """

    separate = True  # a replica's numbers do not depend on which others there are

    def __init__(self, layout: Layout, module: nn.Module, losses: Losses) -> None:
        self.layout = layout
        self.losses = losses
        parameters = dict(module.named_parameters())
        self.parameters = [parameters[entry.name] for entry in layout.entries]

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """See Oracle."""
        found = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.no_grad(), self._bound():
            for group in batch:
                for place, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, place, params):
                        found[trial, group.start + place] += self.losses(data) @ weights
        return found

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Oracle."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        loss = self.add_gradient_(params, batch, total, want_loss=True)
        assert loss is not None
        return loss, total

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """See Oracle; the gradient of the slope along the vector."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        with torch.enable_grad(), self._bound():
            for group in batch:
                along, held = self._tensors(vector, group), self._tensors(total, group)
                for place, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, place, params):
                        loss = self.losses(data) @ weights
                        slopes = torch.autograd.grad(loss, self.parameters, create_graph=True)
                        products = [(a * b).sum() for a, b in zip(slopes, along[place][trial], strict=True)]
                        bend = torch.autograd.grad(torch.stack(products).sum(), self.parameters)
                        torch._foreach_add_(held[place][trial], bend)
        return total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """See Oracle."""
        found = params.new_zeros((params.shape[0], batch[-1].stop))
        with torch.enable_grad(), self._bound():
            for group in batch:
                held = self._tensors(total, group)
                for place, trial, tensors in self._replicas(params, group):
                    self._bind(tensors)
                    for data, weights in pieces(group, place, params):
                        loss = self.losses(data) @ weights
                        torch._foreach_add_(held[place][trial], torch.autograd.grad(loss, self.parameters))
                        if want_loss:
                            found[trial, group.start + place] += loss.detach()
        return found if want_loss else None

    def _bind(self, tensors: list[Tensor]) -> None:
        for parameter, tensor in zip(self.parameters, tensors, strict=True):
            parameter.data = tensor

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """Gives the module its own tensors back afterwards, so that it keeps no replicas alive."""
        own = [parameter.data for parameter in self.parameters]
        try:
            yield
        finally:
            self._bind(own)

    def _replicas(self, params: Tensor, group: Group) -> Iterator[tuple[int, int, list[Tensor]]]:
        """(place in the group, trial, tensors in the order of the layout) of every replica."""
        for place, trials in enumerate(self._tensors(params, group)):
            for trial, tensors in enumerate(trials):
                yield place, trial, tensors

    def _tensors(self, params: Tensor, group: Group) -> list[list[list[Tensor]]]:
        """Views [place][trial][tensor]."""
        views = self.layout.views(client_major(params, group).detach()).values()
        columns = [[trials.unbind(0) for trials in view.unbind(0)] for view in views]
        places, trials = group.stop - group.start, params.shape[0]
        return [[[column[place][trial] for column in columns] for trial in range(trials)] for place in range(places)]


def pieces(group: Group, place: int, like: Tensor) -> Iterator[tuple[Data, Tensor]]:
    """(data, weights of the examples, sum 1 in all) of one client, cut into pieces of bounded size.

    Args:
        group: of the client.
        place: of the client in it.
        like: a tensor of the type and on the device of the parameters.
    """
    weights = example_weights(group, next(iter(group.data.values())).shape[1], like)[place]
    for start in range(0, len(weights), _EXAMPLES):
        stop = start + _EXAMPLES
        yield {name: held[place, start:stop] for name, held in group.data.items()}, weights[start:stop]
