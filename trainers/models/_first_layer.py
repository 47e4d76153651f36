"""The local loop of a multilayer perceptron with its first weight in example space (see _example_space).

In a round, a client's first weight is W + C^T X, where W is the weight at the start, X (examples, inputs) are the
examples that the client's mini-batches use, and C (examples, units) starts at 0. A constant term V of the motion adds a
row to C, which multiplies V. The loop runs on models that consist of C and the other tensors, by the gradients of
`ByHand`: the first layer's outputs are X_B W^T + X_B X^T C for the examples B of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.engine.local.descent import Descent
from trainers.engine.local.replicas import Replicas
from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import Batch, Group, RoundBatches, unset_replicas
from trainers.models._by_hand import ByHand
from trainers.models._example_space import InnerProducts, example_space_pays
from trainers.models._layers import Dense, Tensors


class FirstLayerInExampleSpace(ByHand):
    """`ByHand` for layers that begin with a dense one; its local loop keeps that weight in example space where it pays.

    Args:
        by_hand: the oracle, of a stack that `takes_rows`; its numbers have one type.
        products: inner products of the inputs.
    """

    instead_of = "stacked"

    def __init__(self, by_hand: ByHand, products: InnerProducts) -> None:
        super().__init__(by_hand.layout, by_hand.layers, by_hand.loss, None, by_hand.examples, by_hand.second)
        self.products = products

    def frame(self, batches: RoundBatches, motion: Motion) -> Frame | None:
        """A frame for one trial; None if it does not apply or would not pay."""
        distinct = batches.distinct(motion.steps) if motion.start.shape[0] == 1 else None
        units, columns = self.layout.entries[0].shape
        if distinct is None or not example_space_pays(distinct, motion, units, columns, self.products.keeps):
            return None
        parts = []
        groups = zip(distinct.batch, distinct.places, distinct.weights, distinct.rows, strict=True)
        for group, places, weights, rows in groups:
            clients = batches.clients[group.start : group.stop]
            products = self.products.among(clients, rows, group.data["inputs"].flatten(2))
            steps = _PlacedExamples(range(group.stop - group.start), places, weights, group.data["targets"])
            parts.append(GroupFrame(self, group, steps, products, motion))
        return FirstLayerFrame(parts)


class FirstLayerFrame(Frame):
    """The frames of all groups of clients.

    Args:
        parts: frames of the groups, in the order of the clients.
    """

    def __init__(self, parts: list[GroupFrame]) -> None:
        self.parts = parts
        self.totals = [part.inner.totals[0] for part in parts]
        self._lifted: list[Tensor] | None = None

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
        losses = []
        for part in self.parts:
            clients = min(part.group.stop, busy) - part.group.start
            if clients <= 0:
                break
            losses.append(part.inner.add_(step, width, clients, want_loss))
        return torch.cat([loss for loss in losses if loss is not None], 1) if want_loss else None

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (1, M, P)."""
        last = self.parts[-1]
        total = unset_replicas(last.motion.start, 1, last.group.stop, last.motion.start.shape[-1])
        for part, gradients in zip(self.parts, self._inside(sums), strict=True):
            part.lift(gradients, total[:, part.group.start : part.group.stop])
        return total

    def mean(self, sums: list[Tensor], weights: Tensor) -> Tensor:
        """(1, 1, P) weighted mean over the clients: one product with the inputs of all of them."""
        start = self.parts[-1].motion.start
        total = start.new_zeros((1, 1, start.shape[-1]))
        for part, gradients in zip(self.parts, self._inside(sums), strict=True):
            part.add_mean_(gradients, weights[part.group.start : part.group.stop], total)
        return total

    def _inside(self, sums: list[Tensor]) -> list[Tensor]:
        """The gradients of the models of the loop, (1, m, numbers) each; the sums are overwritten with them."""
        if self._lifted is None:
            pairs = zip(self.parts, sums, strict=True)
            self._lifted = [part.inner.lift([summed]) for part, summed in pairs]
        return self._lifted


class GroupFrame:
    """The local loop of a group of clients.

    Args:
        oracle: oracle of the model.
        group: the clients' distinct examples.
        steps: batches of the steps, as places in the group.
        products: (m, examples, examples) inner products of the inputs.
        motion: motion of the models.
    """

    def __init__(self, oracle: ByHand, group: Group, steps: _PlacedExamples, products: Tensor, motion: Motion) -> None:
        self.group = group
        self.motion = motion
        self.clients = steps.clients
        self.inputs = group.data["inputs"].flatten(2)
        weight, *others = oracle.layout.entries
        self.weight_shape = weight.shape
        self.examples, constant = self.inputs.shape[1], motion.shift is not None
        shapes = {"coefficients": (self.examples + constant, weight.shape[0])}
        self.layout = Layout.of({**shapes, **{entry.name: entry.shape for entry in others}})
        self.others = slice(others[0].offset, None), slice(self.layout.entries[1].offset, None)
        shifted = None if motion.shift is None else self._products(motion.shift)
        names = ["coefficients", *oracle.layers[oracle.first].names[1:]]
        first = _ExampleLayer(names, self._products(motion.start), products, shifted)
        descent = ByHand(self.layout, [first, *oracle.layers[oracle.first + 1 :]], oracle.loss)
        shift = None if motion.shift is None else self._inside(motion.shift)
        if shift is not None:
            self.layout.views(shift)["coefficients"][..., self.examples :, :] = 1
        inner = replace(motion, start=self._inside(motion.start), shift=shift)
        self.inner: Descent | Replicas = (Replicas if motion.rate is None else Descent)(descent, steps, inner)

    def lift(self, gradients: Tensor, total: Tensor) -> None:
        """Converts gradients (1, m, numbers) of the loop's models to gradients of the models, `total` (1, m, P)."""
        coefficients, constant = self._coefficients(gradients)
        weight = self._weight(total)
        weight.baddbmm_(coefficients.transpose(1, 2), self.inputs, beta=0)
        if self.motion.shift is not None:
            weight.addcmul_(self._weight(self.motion.shift), constant.transpose(1, 2))
        outside, inside = self.others
        total[..., weight[0].numel() : outside.start].zero_()
        total[..., outside] = gradients[..., inside]

    def add_mean_(self, gradients: Tensor, weights: Tensor, total: Tensor) -> None:
        """Adds the sum over the clients, with weights (m,), of the gradients from `lift` to `total` (1, 1, P)."""
        coefficients, constant = self._coefficients(gradients)
        weighted = coefficients * weights[:, None, None]
        weight = self._weight(total)[0]
        weight.addmm_(weighted.flatten(0, 1).T, self.inputs.flatten(0, 1))
        if self.motion.shift is not None:
            shift = self._weight(self.motion.shift)
            weight.add_(((weights[:, None, None] * constant).transpose(1, 2) * shift).sum(0))
        outside, inside = self.others
        total[..., outside] += weights @ gradients[0, :, inside]

    def _coefficients(self, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (m, examples, units) of the inputs, and (m, 1 or 0, units) of the constant term."""
        coefficients = self.layout.views(gradients[0])["coefficients"]
        return coefficients[:, : self.examples], coefficients[:, self.examples :]

    def _products(self, params: Tensor) -> Tensor:
        """(m, examples, units) products of the inputs with the first weight of params (1, M or 1, P)."""
        weight = self._weight(params)
        if len(weight) == 1:
            return (self.inputs.flatten(0, 1) @ weight[0].T).view(*self.inputs.shape[:2], -1)
        return torch.bmm(self.inputs, weight.transpose(1, 2))

    def _weight(self, params: Tensor) -> Tensor:
        """(m or 1, units, inputs) views of the first weight of params (1, M, m or 1, P)."""
        units, columns = self.weight_shape
        models = self._own(params)[0]
        return models[:, : units * columns].view(len(models), units, columns)

    def _inside(self, params: Tensor) -> Tensor:
        """(1, m or 1, numbers) models of the loop: coefficients 0, and the other tensors of params (1, M or 1, P)."""
        models = self._own(params)
        loop_models = models.new_zeros((1, models.shape[1], self.layout.size))
        outside, inside = self.others
        loop_models[..., inside] = models[..., outside]
        return loop_models

    def _own(self, params: Tensor) -> Tensor:
        """The group's share of params (1, M, m or 1, P)."""
        everyone = params.shape[1] in (1, len(self.clients))
        return params if everyone else params[:, self.group.start : self.group.stop]


@dataclass(frozen=True)
class _PlacedExamples:
    """The batches of a group of clients: examples by their places.

    Args:
        clients: indices of the clients, from 0.
        places: (steps, m, batch_size).
        weights: (steps, m, batch_size) weights of the examples; None is the plain mean.
        targets: (m, examples, ...).
    """

    clients: range
    places: Tensor
    weights: Tensor | None
    targets: Tensor

    def batch(self, step: int, clients: int) -> Batch:
        """The places and targets of one step for the first `clients` clients."""
        places = self.places[step, :clients]
        numbers = torch.arange(clients, device=places.device)[:, None]
        data = {"inputs": places, "targets": self.targets[numbers, places]}
        return (Group(0, clients, data, None if self.weights is None else self.weights[step, :clients]),)


class _ExampleLayer(Dense):
    """A dense layer whose weight is the coefficients C, and whose inputs are the places of examples.

    Args:
        names: names of the coefficients and the bias, or of the coefficients alone.
        outputs: (m, examples, units) outputs at the start, without bias.
        products: (m, examples, examples) inner products of the inputs.
        shifted: (m, examples, units) products with the constant term; None without one.
    """

    def __init__(self, names: Sequence[str], outputs: Tensor, products: Tensor, shifted: Tensor | None) -> None:
        super().__init__(names)
        self.first = outputs
        self.products = products
        self.shifted = shifted

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        weight, examples = tensors[0], self.first.shape[1]
        rows = (inputs + examples * torch.arange(len(inputs), device=inputs.device)[:, None]).flatten()

        def at(tensor: Tensor) -> Tensor:
            return tensor.flatten(0, 1).index_select(0, rows).view(*inputs.shape, -1)

        outputs = at(self.first)
        for bias in tensors[1:]:
            outputs.add_(bias[:, None])
        outputs.baddbmm_(at(self.products), weight[:, :examples])
        if self.shifted is not None:
            outputs.addcmul_(at(self.shifted), weight[:, examples:])
        return outputs, inputs

    def add_products_(self, weight: Tensor, inputs: Tensor, spread: Tensor, fresh: bool = False) -> None:
        if fresh:
            weight.zero_()
        weight.scatter_add_(1, inputs[..., None].expand_as(spread), spread)
