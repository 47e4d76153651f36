"""A hand-written oracle for layers with ReLU between them, one trial at a time.

About ten replicas of a small network fit into a processor's cache, a whole pack of trials does not. Dense layers alone
are batched products for all clients of a trial; with convolutions each client is computed by itself. Gradients are
added in place to the running sums, and local steps change the models in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.oracles.oracle import Batch, Between, Group, Oracle, client_major, example_weights, replicas
from trainers.models._dropout import Dropout
from trainers.models._layers import Layer
from trainers.models._losses import KindLoss

_EXAMPLES = 8192  # of all clients together, computed at once
_ALONE = 64  # of a client by itself

Tensors = list[tuple[Tensor, Tensor]]
"""(weight (m, ...), bias (m, outputs)) of each layer."""


class ByHand(Oracle):
    """Losses and derivatives of a network, by hand. ReLU follows all layers except the last.

    Args:
        layout: weight and bias of each layer, in order.
        layers: the layers.
        loss: of the scores.
        dropouts: dropout after the ReLU of each layer except the last, None for none; () is no dropout.
        rounding: type of the factors and results of all products; None is that of the models. Sums of gradients, and
            losses given the scores, have the type of the models in any case.
        examples: of all clients together that dense layers compute at once.
    """

    separate = True  # a trial's numbers do not depend on the other trials
    descends = True

    def __init__(
        self,
        layout: Layout,
        layers: Sequence[Layer],
        loss: KindLoss,
        dropouts: Sequence[Dropout | None],
        rounding: torch.dtype | None = None,
        examples: int = _EXAMPLES,
    ) -> None:
        self.layout = layout
        self.layers = layers
        self.loss = loss
        self.dropouts = dropouts
        self.rounding = rounding
        self.examples = examples
        self.stacked = all(layer.stacked for layer in layers)
        self.client_by_client = not self.stacked
        ends = [entry.offset + entry.extent for entry in layout.entries]
        starts = [*(entry.offset for entry in layout.entries[1:]), layout.size]
        self.gaps = [slice(end, start) for end, start in zip(ends, starts, strict=True) if start > end]

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        for group in self._groups(batch):
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                tensors = self._factors(self._tensors(models))
                for piece in self._pieces(group, params):
                    scores = self._forward(tensors, piece).scores
                    losses[trial, group.start : group.stop] += piece.mean_loss(scores)
        return losses

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
        for group in self._groups(batch):
            clients, steps = slice(group.start, group.stop), []
            for trial, held in enumerate(client_major(models, group).unbind(1)):
                own, factor = self._tensors(held), -float(rate[trial])
                tensors = self._factors(own)
                for piece in self._pieces(group, models):
                    passed = self._forward(tensors, piece)
                    if want_loss:
                        losses[trial, clients] += piece.mean_loss(passed.scores)
                    slopes = piece.slopes(passed.scores, factor)
                    steps.append((own, passed, self._backward(tensors, piece, passed, slopes)))
            if between is not None:
                between(clients)
            for step in steps:
                self._add(*step)
        return losses if want_loss else None

    def _gradients(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool, fresh: bool) -> Tensor | None:
        losses = params.new_zeros((params.shape[0], batch[-1].stop))
        for gap in self.gaps if fresh else ():
            total[:, : batch[-1].stop, gap].zero_()
        for group in self._groups(batch):
            held = client_major(total, group).unbind(1)
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                tensors, sums = self._factors(self._tensors(models)), self._tensors(held[trial])
                for number, piece in enumerate(self._pieces(group, params)):
                    passed = self._forward(tensors, piece)
                    if want_loss:
                        losses[trial, group.start : group.stop] += piece.mean_loss(passed.scores)
                    slopes = self._backward(tensors, piece, passed, piece.slopes(passed.scores))
                    self._add(sums, passed, slopes, fresh and number == 0)
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
        for group in self._groups(batch):
            turns: list[tuple[Tensors, Turned]] = []
            held, along = client_major(total, group).unbind(1), client_major(vector, group).unbind(1)
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                tensors, turn = (self._factors(self._tensors(rows)) for rows in (models, along[trial]))
                sums = self._tensors(held[trial])
                scale = -float(rate[trial])
                turns += [(sums, self._turn(tensors, turn, piece, scale)) for piece in self._pieces(group, params)]
            if between is not None:
                between(slice(group.start, group.stop))
            for sums, turned in turns:
                self._add(sums, turned.passed, turned.bends)
                for layer, (weight, _), change, slopes in zip(
                    self.layers[1:], sums[1:], turned.changes, turned.slopes[1:], strict=True
                ):
                    layer.add_(weight, change, slopes.spread)

    def _tensors(self, models: Tensor) -> Tensors:
        views = list(self.layout.views(models).values())
        return list(zip(views[::2], views[1::2], strict=True))

    def _factors(self, tensors: Tensors) -> Tensors:
        """Tensors as factors of products."""
        if self.rounding is None:
            return tensors
        return [(self._rounded(weight), self._rounded(bias)) for weight, bias in tensors]

    def _rounded(self, held: Tensor) -> Tensor:
        return held if self.rounding is None else held.to(self.rounding)

    def _forward(self, tensors: Tensors, piece: Piece) -> Passed:
        here, inputs, marks = self.layers[0].shown(self._rounded(piece.inputs)), [], []
        for number, (layer, (weight, bias)) in enumerate(zip(self.layers, tensors, strict=True)):
            inputs.append(here)
            here, mark = layer.outputs(weight, bias, here)
            marks.append(mark)
            if number + 1 < len(tensors):
                here = here.relu_()
                kept = self._kept(number, piece, here)
                here = here if kept is None else here.mul_(kept)
        return Passed(inputs, marks, here.to(piece.weights.dtype))

    def _backward(self, tensors: Tensors, piece: Piece, passed: Passed, slopes: Tensor) -> list[Slopes]:
        """The slopes of each layer; those by the scores are given."""
        slopes, backwards = self._rounded(slopes), []
        for number in reversed(range(len(tensors))):
            layer = self.layers[number]
            backwards.append(Slopes(slopes, layer.spread(slopes, passed.marks[number])))
            if number > 0:
                slopes = layer.slopes(tensors[number][0], backwards[-1].spread)
                slopes = self._gate(slopes, number, piece, passed)
        return backwards[::-1]

    def _add(self, sums: Tensors, passed: Passed, slopes: list[Slopes], fresh: bool = False) -> None:
        """Adds the gradients that follow from the slopes of all layers to the sums; `fresh` overwrites them."""
        for layer, (weight, bias), inputs, here in zip(self.layers, sums, passed.inputs, slopes, strict=True):
            layer.add_(weight, inputs, here.spread, fresh)
            summed = here.outputs.flatten(1, -2).sum(1, dtype=bias.dtype)
            if fresh:
                bias.copy_(summed)
            else:
                bias.add_(summed)

    def _turn(self, tensors: Tensors, turns: Tensors, piece: Piece, scale: float) -> Turned:
        """The derivatives of the forward and backward pass along `turns`; those of the backward pass times `scale`."""
        passed = self._forward(tensors, piece)
        change, changes = None, []
        for number, (layer, (weight, _), (turn, bias)) in enumerate(zip(self.layers, tensors, turns, strict=True)):
            change = layer.turned(weight, passed.inputs[number], turn, bias, change, passed.marks[number])
            if number + 1 < len(tensors):
                change = self._gate(change, number + 1, piece, passed)
                changes.append(change)
        assert change is not None
        slopes = self._backward(tensors, piece, passed, piece.slopes(passed.scores, scale))
        bend, bends = self._rounded(piece.bends(passed.scores, change.to(piece.weights.dtype), scale)), []
        for number in reversed(range(len(tensors))):
            layer = self.layers[number]
            bends.append(Slopes(bend, layer.spread(bend, passed.marks[number])))
            if number > 0:
                bend = layer.bends(tensors[number][0], slopes[number].spread, turns[number][0], bends[-1].spread)
                bend = self._gate(bend, number, piece, passed)
        return Turned(passed, changes, bends[::-1], slopes)

    def _gate(self, changes: Tensor, number: int, piece: Piece, passed: Passed) -> Tensor:
        """Multiplies changes of a layer's inputs by the derivative of the ReLU and the dropout before it."""
        active = passed.inputs[number]
        gated: Tensor = torch.ops.aten.threshold_backward(changes.view_as(active), active, 0)
        kept = self._kept(number - 1, piece, active)
        return gated if kept is None else gated.mul_(kept)

    def _kept(self, number: int, piece: Piece, like: Tensor) -> Tensor | None:
        """What dropout multiplies the activations of a layer by."""
        dropout = self.dropouts[number] if self.dropouts else None
        if piece.keys is None or dropout is None:
            return None
        return dropout.factors(piece.keys, like[0, 0].numel(), like).view_as(like)

    def _groups(self, batch: Batch) -> Iterator[Group]:
        """The clients that are computed at once."""
        for group in batch:
            if self.stacked:
                yield group
                continue
            for client in range(group.start, group.stop):
                yield group.alone(client, client)

    def _pieces(self, group: Group, like: Tensor) -> Iterator[Piece]:
        """The examples of a group, cut into pieces of bounded size."""
        clients, examples = group.data["targets"].shape[:2]
        weights = example_weights(group, examples, like)
        size = max(1, self.examples // clients) if self.stacked else _ALONE
        for start in range(0, examples, size):
            yield Piece(group, weights, slice(start, start + size), self.loss)


class Piece:
    """Some examples of all clients of a group.

    Args:
        group: the group.
        weights: (m, examples of the group) weights with sum 1 per client.
        some: slice of the examples.
        loss: of the scores.
    """

    def __init__(self, group: Group, weights: Tensor, some: slice, loss: KindLoss) -> None:
        self.loss = loss
        self.weights = weights[:, some]
        self.inputs = group.data["inputs"][:, some]
        self.targets = group.data["targets"][:, some]
        keys = group.data.get("keys")
        self.keys = None if keys is None else keys[:, some]

    def mean_loss(self, scores: Tensor) -> Tensor:
        """(m,) mean losses of scores (m, examples, outputs)."""
        return (self.loss.losses(scores, self.targets, -1) * self.weights).sum(-1)

    def slopes(self, scores: Tensor, scale: float = 1.0) -> Tensor:
        """The derivatives of the mean losses with respect to the scores, times `scale`."""
        return self.loss.weighted_slopes(scores, self.targets, self._scaled(scale))

    def bends(self, scores: Tensor, along: Tensor, scale: float = 1.0) -> Tensor:
        """The second derivatives of the mean losses times a change of the scores, times `scale`."""
        return self.loss.bend(scores, along, -1).mul_(self._scaled(scale)[..., None])

    def _scaled(self, scale: float) -> Tensor:
        return self.weights if scale == 1.0 else self.weights * scale


@dataclass(frozen=True)
class Passed:
    """What the forward pass leaves.

    Args:
        inputs: of each layer.
        marks: of each layer.
        scores: outputs of the last layer, (m, examples, classes).
    """

    inputs: list[Tensor]
    marks: list[Any]
    scores: Tensor


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the weighted loss by what a layer puts out, or changes of them.

    Args:
        outputs: by the outputs before ReLU.
        spread: by what is pooled to outputs.
    """

    outputs: Tensor
    spread: Tensor


@dataclass(frozen=True)
class Turned:
    """A Hessian-vector product before it is added up.

    Args:
        passed: the forward pass.
        changes: derivatives along the vector of the inputs of each layer except the first.
        bends: derivatives along the vector of the slopes of each layer.
        slopes: of each layer.
    """

    passed: Passed
    changes: list[Tensor]
    bends: list[Slopes]
    slopes: list[Slopes]
