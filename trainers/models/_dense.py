"""A hand-written oracle for dense layers with ReLU: batched products for all clients of a trial, one trial at a time.

About ten replicas of such a network fit into a processor's cache, a whole pack of trials does not. The gradient of a
weight matrix is one product, added in place to the running sums. Activations are (clients, examples, units), because
forward products are a third slower with the last two swapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.oracles.oracle import Batch, Between, Group, Oracle, client_major, example_weights, replicas
from trainers.models._dropout import Dropout

_EXAMPLES = 8192  # of all clients together, computed at once

Layers = list[tuple[Tensor, Tensor]]
"""(weight (m, outputs, inputs), bias (m, outputs)) of each layer."""


class Dense(Oracle):
    """Losses and derivatives of a multilayer perceptron, by hand.

    Args:
        layout: weight and bias of each layer, in order.
        dropouts: dropout after the ReLU of each hidden layer; () is no dropout.
    """

    separate = True  # a trial's numbers do not depend on the other trials
    descends = True

    def __init__(self, layout: Layout, dropouts: Sequence[Dropout]) -> None:
        self.layout = layout
        self.dropouts = dropouts
        ends = [entry.offset + entry.extent for entry in layout.entries]
        starts = [*(entry.offset for entry in layout.entries[1:]), layout.size]
        self.gaps = [slice(end, start) for end, start in zip(ends, starts, strict=True) if start > end]

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        for group in batch:
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                for piece in pieces(group, params):
                    scores = self._forward(self._layers(models), piece)[-1]
                    losses[trial, group.start : group.stop] += piece.mean_loss(scores)
        return losses

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(T, M) mean losses and their (T, M, P) gradients."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        loss = self.add_gradient_(params, batch, total, want_loss=True)
        assert loss is not None
        return loss, total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        return self._gradients(params, batch, total, want_loss, fresh=False)

    def gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Overwrites `total` with the gradients; returns the losses if `want_loss`."""
        return self._gradients(params, batch, total, want_loss, fresh=True)

    def descend_(
        self, models: Tensor, batch: Batch, rate: Tensor, between: Between = None, want_loss: bool = False
    ) -> Tensor | None:
        """Subtracts rate times the gradients from the models in place; returns the losses if `want_loss`."""
        losses = models.new_zeros((models.shape[0], batch[-1].stop))
        steps = []
        for group in batch:
            for trial, held in enumerate(client_major(models, group).unbind(1)):
                layers, factor = self._layers(held), -float(rate[trial])
                for piece in pieces(group, models):
                    *hidden, scores = self._forward(layers, piece)
                    if want_loss:
                        losses[trial, group.start : group.stop] += piece.mean_loss(scores)
                    slopes = self._slopes(layers, piece, hidden, piece.slopes(scores, factor))
                    steps.append((layers, piece, hidden, slopes))
        if between is not None:
            between()
        for layers, piece, hidden, slopes in steps:
            self._add(layers, piece, hidden, slopes)
        return losses if want_loss else None

    def _gradients(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool, fresh: bool) -> Tensor | None:
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        for gap in self.gaps if fresh else ():
            total[:, : batch[-1].stop, gap].zero_()
        for group in batch:
            held = client_major(total, group).unbind(1)
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                layers, sums = self._layers(models), self._layers(held[trial])
                for number, piece in enumerate(pieces(group, params)):
                    *hidden, scores = self._forward(layers, piece)
                    if want_loss:
                        losses[trial, group.start : group.stop] += piece.mean_loss(scores)
                    slopes = self._slopes(layers, piece, hidden, piece.slopes(scores))
                    self._add(sums, piece, hidden, slopes, fresh and number == 0)
        return losses if want_loss else None

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """The derivative of the forward and backward pass along the vector (see Oracle)."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        self._bend(params, batch, vector, total, params.new_full((params.shape[0],), -1.0), None)
        return total

    def bend_(self, params: Tensor, batch: Batch, vector: Tensor, rate: Tensor, between: Between = None) -> None:
        """Subtracts rate times the Hessian-vector products from the vector in place."""
        self._bend(params, batch, vector, vector, rate, between)

    def _bend(
        self, params: Tensor, batch: Batch, vector: Tensor, total: Tensor, rate: Tensor, between: Between
    ) -> None:
        """Subtracts rate times the Hessian-vector products from `total`, which may be the vector."""
        turns: list[tuple[Layers, Piece, Turned]] = []
        for group in batch:
            held, along = client_major(total, group).unbind(1), client_major(vector, group).unbind(1)
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                layers, sums, turn = (self._layers(rows) for rows in (models, held[trial], along[trial]))
                scale = -float(rate[trial])
                turns += [(sums, piece, self._turn(layers, turn, piece, scale)) for piece in pieces(group, params)]
        if between is not None:
            between()
        for sums, piece, turned in turns:
            self._add(sums, piece, turned.hidden, turned.bends)
            for number, (weight, _) in enumerate(sums[1:]):
                weight.baddbmm_(turned.slopes[number + 1].transpose(1, 2), turned.changes[number])

    def _layers(self, models: Tensor) -> Layers:
        views = list(self.layout.views(models).values())
        return list(zip(views[::2], views[1::2], strict=True))

    def _forward(self, layers: Layers, piece: Piece) -> list[Tensor]:
        """Hidden activations and the scores, (m, examples, units) each."""
        here, outputs = piece.inputs, []
        for number, (weight, bias) in enumerate(layers):
            here = torch.baddbmm(bias[:, None], here, weight.transpose(1, 2))
            if number + 1 < len(layers):
                here = here.relu_()
                factors = self._factors(number, piece, here)
                here = here if factors is None else here.mul_(factors)
            outputs.append(here)
        return outputs

    def _slopes(self, layers: Layers, piece: Piece, hidden: list[Tensor], slopes: Tensor) -> list[Tensor]:
        """The derivatives of the weighted loss by the outputs of each layer before ReLU; `slopes` are the last ones."""
        backwards = [slopes]
        for number in reversed(range(1, len(layers))):
            slopes = torch.bmm(slopes, layers[number][0])
            slopes = self._gate(slopes, number - 1, piece, hidden[number - 1])
            backwards.append(slopes)
        return backwards[::-1]

    def _add(self, sums: Layers, piece: Piece, hidden: list[Tensor], slopes: list[Tensor], fresh: bool = False) -> None:
        """Adds the gradients that follow from the slopes of all layers to the sums; `fresh` overwrites them."""
        for number, (weight, bias) in enumerate(sums):
            before = piece.inputs if number == 0 else hidden[number - 1]
            weight.baddbmm_(slopes[number].transpose(1, 2), before, beta=0 if fresh else 1)
            if fresh:
                bias.copy_(slopes[number].sum(1))
            else:
                bias.add_(slopes[number].sum(1))

    def _turn(self, layers: Layers, turns: Layers, piece: Piece, scale: float) -> Turned:
        """The derivatives of the forward and backward pass along `turns`; those of the backward pass times `scale`."""
        *hidden, scores = self._forward(layers, piece)
        here, changes = piece.inputs, []
        for number, ((weight, _), (turn, bias)) in enumerate(zip(layers, turns, strict=True)):
            before = piece.inputs if number == 0 else hidden[number - 1]
            change = torch.baddbmm(bias[:, None], before, turn.transpose(1, 2))
            here = change if number == 0 else change.baddbmm_(here, weight.transpose(1, 2))
            if number + 1 < len(layers):
                here = self._gate(here, number, piece, hidden[number])
            changes.append(here)
        bends = [piece.bends(scores, changes[-1], scale)]
        slopes = self._slopes(layers, piece, hidden, piece.slopes(scores, scale))
        for number in reversed(range(1, len(layers))):
            bend = torch.bmm(bends[-1], layers[number][0]).baddbmm_(slopes[number], turns[number][0])
            bends.append(self._gate(bend, number - 1, piece, hidden[number - 1]))
        return Turned(hidden, changes, bends[::-1], slopes)

    def _gate(self, changes: Tensor, number: int, piece: Piece, active: Tensor) -> Tensor:
        """Multiplies changes (m, examples, units) by the derivative of a hidden layer's ReLU and dropout."""
        factors = self._factors(number, piece, active)
        return changes.mul_(active > 0) if factors is None else changes.mul_((active > 0) * factors)

    def _factors(self, number: int, piece: Piece, like: Tensor) -> Tensor | None:
        if piece.keys is None or not self.dropouts:
            return None
        return self.dropouts[number].factors(piece.keys, like.shape[-1], like)


class Piece:
    """Some examples of all clients of a group.

    Args:
        group: the group.
        weights: (m, examples of the group) weights with sum 1 per client.
        some: slice of the examples.
    """

    def __init__(self, group: Group, weights: Tensor, some: slice) -> None:
        self.weights = weights[:, some]
        self.inputs = group.data["inputs"][:, some].flatten(2)
        self.targets = group.data["targets"][:, some]
        keys = group.data.get("keys")
        self.keys = None if keys is None else keys[:, some]

    def mean_loss(self, scores: Tensor) -> Tensor:
        """(m,) mean cross-entropies of scores (m, examples, classes)."""
        logs = torch.log_softmax(scores, -1).gather(-1, self.targets[..., None])[..., 0]
        return -(logs * self.weights).sum(-1)

    def slopes(self, scores: Tensor, scale: float = 1.0) -> Tensor:
        """The derivatives of the mean losses with respect to the scores, times `scale`."""
        weights = self.weights if scale == 1.0 else self.weights * scale
        slopes = torch.softmax(scores, -1).mul_(weights[..., None])
        return slopes.scatter_add_(-1, self.targets[..., None], -weights[..., None])

    def bends(self, scores: Tensor, along: Tensor, scale: float = 1.0) -> Tensor:
        """The second derivatives of the mean losses times a change of the scores, times `scale`."""
        shares = torch.softmax(scores, -1)
        weights = self.weights if scale == 1.0 else self.weights * scale
        return shares.mul_(along - (shares * along).sum(-1, keepdim=True)).mul_(weights[..., None])


@dataclass(frozen=True)
class Turned:
    """A Hessian-vector product before it is added up, (m, examples, units) each.

    Args:
        hidden: activations of the hidden layers.
        changes: derivatives along the vector of the outputs of each layer, after ReLU.
        bends: derivatives along the vector of the slopes.
        slopes: derivatives of the loss by the outputs of each layer before ReLU.
    """

    hidden: list[Tensor]
    changes: list[Tensor]
    bends: list[Tensor]
    slopes: list[Tensor]


def pieces(group: Group, like: Tensor) -> Iterator[Piece]:
    """The examples of a group, cut into pieces of bounded size."""
    clients, examples = group.data["targets"].shape
    weights = example_weights(group, examples, like)
    size = max(1, _EXAMPLES // clients)
    for start in range(0, examples, size):
        yield Piece(group, weights, slice(start, start + size))
