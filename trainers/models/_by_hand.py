"""A hand-written oracle for layers one after another, one trial at a time.

About ten replicas of a small network fit into a processor's cache, a whole pack of trials does not. Dense layers are
batched products for all clients of a trial; with convolutions or embeddings each client is computed by itself.
Gradients are added in place to the running sums, and local steps change the models in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.oracles.oracle import Batch, Between, Group, Oracle, client_major, example_weights, replicas
from trainers.models._layers import Layer, Tensors
from trainers.models._losses import KindLoss

EXAMPLES = 8192
"""Examples of all clients together that are computed at once."""
_ALONE = 64  # examples of a client by itself that are computed at once


class ByHand(Oracle):
    """Losses and derivatives of a network, by hand.

    Args:
        layout: layout of the parameters.
        layers: the layers, which use each tensor of the layout once.
        loss: loss of the scores.
        rounding: type of the factors and results of all products; None is the type of the models. Sums of gradients,
            and losses given the scores, have the type of the models in any case.
        examples: examples of all clients together that are computed at once.
        second: gives Hessian-vector products if a layer has no second derivatives by hand.
    """

    separate = True  # a trial's numbers do not depend on the other trials
    descends = True

    def __init__(
        self,
        layout: Layout,
        layers: Sequence[Layer],
        loss: KindLoss,
        rounding: torch.dtype | None = None,
        examples: int = EXAMPLES,
        second: Oracle | None = None,
    ) -> None:
        self.layout = layout
        self.layers = layers
        self.loss = loss
        self.rounding = rounding
        self.examples = examples
        self.stacked = all(layer.stacked for layer in layers)
        self.client_by_client = not self.stacked
        self.first = next(number for number, layer in enumerate(layers) if layer.names)
        self.second = None if all(layer.twice for layer in layers[self.first :]) else second
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
            for trial, rows in enumerate(client_major(models, group).unbind(1)):
                unrounded, factor = self._tensors(rows), -float(rate[trial])
                tensors = self._factors(unrounded)
                for piece in self._pieces(group, models):
                    passed = self._forward(tensors, piece)
                    if want_loss:
                        losses[trial, clients] += piece.mean_loss(passed.scores)
                    slopes = piece.slopes(passed.scores, factor)
                    steps.append((unrounded, passed, self._backward(tensors, passed, slopes)))
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
            totals = client_major(total, group).unbind(1)
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                tensors, sums = self._factors(self._tensors(models)), self._tensors(totals[trial])
                for number, piece in enumerate(self._pieces(group, params)):
                    passed = self._forward(tensors, piece)
                    if want_loss:
                        losses[trial, group.start : group.stop] += piece.mean_loss(passed.scores)
                    slopes = self._backward(tensors, passed, piece.slopes(passed.scores))
                    self._add(sums, passed, slopes, fresh and number == 0)
        return losses if want_loss else None

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products: derivatives of the forward and backward pass along the vector."""
        if self.second is not None:
            return self.second.hvp(params, batch, vector)
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        self._bend(params, batch, vector, total, params.new_full((params.shape[0],), -1.0), None)
        return total

    def bend_(self, params: Tensor, batch: Batch, vector: Tensor, rate: Tensor, between: Between = None) -> None:
        """Subtracts rate times the Hessian-vector products from the vector in place."""
        if self.second is not None:
            self.second.bend_(params, batch, vector, rate, between)
        else:
            self._bend(params, batch, vector, vector, rate, between)

    def _bend(
        self, params: Tensor, batch: Batch, vector: Tensor, total: Tensor, rate: Tensor, between: Between
    ) -> None:
        """Subtracts rate times the Hessian-vector products from `total`, which may be the vector."""
        for group in self._groups(batch):
            turns: list[tuple[list[Tensors], Turned]] = []
            totals, along = client_major(total, group).unbind(1), client_major(vector, group).unbind(1)
            for trial, models in enumerate(client_major(params, group).unbind(1)):
                tensors, turn = (self._factors(self._tensors(rows)) for rows in (models, along[trial]))
                sums = self._tensors(totals[trial])
                scale = -float(rate[trial])
                turns += [(sums, self._turn(tensors, turn, piece, scale)) for piece in self._pieces(group, params)]
            if between is not None:
                between(slice(group.start, group.stop))
            for sums, turned in turns:
                self._add(sums, turned.passed, turned.bends)
                for number, change in turned.changes.items():
                    if sums[number]:
                        self.layers[number].add_products_(sums[number][0], change, turned.slopes[number].spread)

    def _tensors(self, models: Tensor) -> list[Tensors]:
        """The tensors of each layer."""
        views = self.layout.views(models)
        return [[views[name] for name in layer.names] for layer in self.layers]

    def _factors(self, tensors: list[Tensors]) -> list[Tensors]:
        """Tensors as factors of products."""
        return tensors if self.rounding is None else [[self._rounded(tensor) for tensor in layer] for layer in tensors]

    def _rounded(self, tensor: Tensor) -> Tensor:
        return tensor if self.rounding is None or not tensor.is_floating_point() else tensor.to(self.rounding)

    def _forward(self, tensors: list[Tensors], piece: Piece) -> Passed:
        activations, marks = self._rounded(piece.inputs), []
        for layer, layer_tensors in zip(self.layers, tensors, strict=True):
            activations, mark = layer.outputs(layer_tensors, activations, piece.keys)
            marks.append(mark)
        return Passed(marks, activations.to(piece.weights.dtype))

    def _backward(self, tensors: list[Tensors], passed: Passed, slopes: Tensor) -> dict[int, Slopes]:
        """The slopes of each layer from the first with tensors on, given the slopes by the scores."""
        slopes, backwards = self._rounded(slopes), {}
        for number in reversed(range(self.first, len(tensors))):
            layer, marks = self.layers[number], passed.marks[number]
            backwards[number] = Slopes(slopes, layer.spread(slopes, marks))
            if number > self.first:
                slopes = layer.slopes(tensors[number], backwards[number].spread, marks)
        return backwards

    def _add(self, sums: list[Tensors], passed: Passed, slopes: Mapping[int, Slopes], fresh: bool = False) -> None:
        """Adds the gradients that follow from the slopes of all layers to the sums; `fresh` overwrites them."""
        for number, layer_slopes in slopes.items():
            self.layers[number].add_(
                sums[number], layer_slopes.outputs, layer_slopes.spread, passed.marks[number], fresh
            )

    def _turn(self, tensors: list[Tensors], turns: list[Tensors], piece: Piece, scale: float) -> Turned:
        """The derivatives of the forward and backward pass along `turns`; those of the backward pass times `scale`."""
        passed = self._forward(tensors, piece)
        change: Tensor | None = None
        changes: dict[int, Tensor] = {}
        for number in range(self.first, len(tensors)):
            if change is not None:
                changes[number] = change
            change = self.layers[number].turned(tensors[number], turns[number], change, passed.marks[number])
        assert change is not None
        slopes = self._backward(tensors, passed, piece.slopes(passed.scores, scale))
        bend, bends = self._rounded(piece.bends(passed.scores, change.to(piece.weights.dtype), scale)), {}
        for number in reversed(range(self.first, len(tensors))):
            layer, marks = self.layers[number], passed.marks[number]
            bends[number] = Slopes(bend, layer.spread(bend, marks))
            if number > self.first:
                spread = slopes[number].spread, turns[number], bends[number].spread
                bend = layer.bends(tensors[number], *spread, marks)
        return Turned(passed, changes, bends, slopes)

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
        examples: slice of the examples.
        loss: loss of the scores.
    """

    def __init__(self, group: Group, weights: Tensor, examples: slice, loss: KindLoss) -> None:
        self.loss = loss
        self.weights = weights[:, examples]
        self.inputs = group.data["inputs"][:, examples]
        self.targets = group.data["targets"][:, examples]
        keys = group.data.get("keys")
        self.keys = None if keys is None else keys[:, examples]

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
    """Results of the forward pass.

    Args:
        marks: what `Layer.outputs` of each layer kept for derivatives.
        scores: outputs of the last layer, (m, examples, classes).
    """

    marks: list[Any]
    scores: Tensor


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the weighted loss by a layer's outputs, or changes of these derivatives.

    Args:
        outputs: derivatives by the outputs.
        spread: the result of `Layer.spread` for these.
    """

    outputs: Tensor
    spread: Any


@dataclass(frozen=True)
class Turned:
    """A Hessian-vector product before it is added up.

    Args:
        passed: the forward pass.
        changes: derivatives along the vector of the inputs of each layer after the first with tensors.
        bends: derivatives along the vector of the slopes of each layer.
        slopes: slopes of each layer.
    """

    passed: Passed
    changes: Mapping[int, Tensor]
    bends: Mapping[int, Slopes]
    slopes: Mapping[int, Slopes]
