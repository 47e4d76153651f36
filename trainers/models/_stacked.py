"""Hand-written oracles for affine models: batched products for all trials and clients at once."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import (
    Batch,
    Between,
    DistinctExamples,
    Group,
    Oracle,
    RoundBatches,
    client_major,
    replicas,
    unset_replicas,
)
from trainers.models._example_space import InnerProducts, example_space_pays
from trainers.models._losses import Loss


class Stacked(Oracle):
    """All trials and clients at once, by batched products; derivatives by hand.

    Args:
        loss: loss of the scores.
        outputs: number of scores.
        columns: true columns of a row, including the bias.
    """

    descends = True

    def __init__(self, loss: Loss, outputs: int, columns: int) -> None:
        self.loss = loss
        self.outputs = outputs
        self.columns = columns

    def scores(self, models: Tensor, inputs: Tensor) -> Tensor:
        """(m, T, outputs, examples) of models (m, T, P) and inputs (m, examples, row)."""
        clients, trials = models.shape[:2]
        stacked = models.reshape(clients, trials * self.outputs, -1)[..., : self.columns]
        return torch.bmm(stacked, inputs[..., : self.columns].transpose(1, 2)).view(clients, trials, self.outputs, -1)

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        losses = []
        for group in batch:
            scores = self.scores(client_major(params, group), group.data["inputs"])
            losses.append(self.mean_loss(scores, group))
        return torch.cat(losses, 1)

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        for group in batch:
            scores = self.scores(client_major(params, group), group.data["inputs"])
            along = self.scores(client_major(vector, group), group.data["inputs"])
            self._add(self.loss.bend(scores, along), group, total)
        return total

    def bend_(self, params: Tensor, batch: Batch, vector: Tensor, rate: Tensor, between: Between = None) -> None:
        """Subtracts rate times the Hessian-vector products from the vector in place."""
        steps = []
        for group in batch:
            scores = self.scores(client_major(params, group), group.data["inputs"])
            along = self.scores(client_major(vector, group), group.data["inputs"])
            steps.append((self.loss.bend(scores, along), group))
        self._descend(steps, vector, rate, between)

    def descend_(
        self, models: Tensor, batch: Batch, rate: Tensor, between: Between = None, want_loss: bool = False
    ) -> Tensor | None:
        """Subtracts rate times the gradients from the models in place; returns the losses if `want_loss`."""
        losses, steps = [], []
        for group in batch:
            scores = self.scores(client_major(models, group), group.data["inputs"])
            if want_loss:
                losses.append(self.mean_loss(scores, group))
            steps.append((self.loss.slopes_(scores, group.data["wanted"][:, None]), group))
        self._descend(steps, models, rate, between)
        return torch.cat(losses, 1) if want_loss else None

    def _descend(self, steps: list[tuple[Tensor, Group]], total: Tensor, rate: Tensor, between: Between) -> None:
        """Subtracts rate times the gradients that follow from slopes, group by group."""
        if between is not None:
            between(slice(steps[-1][1].stop))
        for slopes, group in steps:
            self._add(slopes.mul_(-rate[None]), group, total)

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        losses = []
        for group in batch:
            scores = self.scores(client_major(params, group), group.data["inputs"])
            if want_loss:
                losses.append(self.mean_loss(scores, group))
            self._add(self.loss.slopes_(scores, group.data["wanted"][:, None]), group, total)
        return torch.cat(losses, 1) if want_loss else None

    def _add(self, slopes: Tensor, group: Group, total: Tensor) -> None:
        """Adds the gradients that follow from slopes (m, T, outputs, examples) with respect to the scores."""
        clients, trials, outputs, examples = slopes.shape
        alpha = 1.0 / examples
        if group.weights is not None:
            slopes, alpha = slopes * group.weights[:, None, None], 1.0
        inputs = group.data["inputs"]
        gradients = client_major(total, group).view(clients, trials * outputs, -1)[..., : inputs.shape[-1]]
        gradients.baddbmm_(slopes.view(clients, trials * outputs, examples), inputs, alpha=alpha)

    def mean_loss(self, scores: Tensor, group: Group) -> Tensor:
        """(T, m) losses of scores (m, T, outputs, examples)."""
        losses = self.loss.losses(scores, group.data["wanted"][:, None])
        mean = losses.mean(-1) if group.weights is None else (losses * group.weights[:, None]).sum(-1)
        return mean.T


class ExampleSpace(Stacked):
    """`Stacked`, whose local loop runs in example space where that pays (see _example_space)."""

    instead_of = "stacked"

    def __init__(self, loss: Loss, outputs: int, columns: int, products: InnerProducts) -> None:
        super().__init__(loss, outputs, columns)
        self.products = products
        self._of_groups: WeakKeyDictionary[Group, Tensor] = WeakKeyDictionary()

    def frame(self, batches: RoundBatches, motion: Motion) -> Frame | None:
        """A frame; None if it does not apply or would not pay, in which case `Stacked` gives the numbers."""
        if batches.always_full:
            applies = motion.shift is None and motion.start.shape[1] == 1
            return self._of_full_batches(batches.full(), motion) if applies else None
        distinct = batches.distinct(motion.steps)
        outputs = motion.start.shape[0] * self.outputs
        if distinct is None or not example_space_pays(distinct, motion, outputs, self.columns, self.products.keeps):
            return None
        return ChosenCoefficients(self, batches.clients, distinct, motion)

    def _of_full_batches(self, batch: Batch, motion: Motion) -> Coefficients | None:
        shapes = [group.data["inputs"].shape for group in batch]
        example_cost = sum(clients * examples**2 for clients, examples, _ in shapes)
        parameter_cost = sum(clients * examples * self.columns for clients, examples, _ in shapes)
        return Coefficients(self, batch, motion) if example_cost <= parameter_cost else None

    def scores_of_rows(self, params: Tensor, group: Group) -> Tensor:
        """(rows, T, outputs) scores of params (T, 1 or M, P) for the examples of one client after the other."""
        inputs, trials = group.data["inputs"][..., : self.columns], params.shape[0]
        if params.shape[1] == 1:
            models = params.reshape(trials * self.outputs, -1)[:, : self.columns]
            return (inputs.flatten(0, 1) @ models.T).view(-1, trials, self.outputs)
        models = client_major(params, group).reshape(len(inputs), trials * self.outputs, -1)[..., : self.columns]
        return torch.bmm(inputs, models.transpose(1, 2)).view(-1, trials, self.outputs)

    def products_of(self, group: Group) -> Tensor:
        """(m, examples, examples) inner products of a group's inputs; cached while the group exists."""
        if group not in self._of_groups:
            inputs = group.data["inputs"]
            self._of_groups[group] = torch.bmm(inputs, inputs.transpose(1, 2))
        return self._of_groups[group]


class Coefficients(Frame):
    """Running sums of gradients as coefficients of a client's inputs; a Frame of the local loop.

    Args:
        oracle: oracle of the model.
        batch: all data of all clients.
        motion: motion of the models, without a shift.
    """

    def __init__(self, oracle: ExampleSpace, batch: Batch, motion: Motion) -> None:
        self.oracle = oracle
        self.batch = batch
        self.motion = motion
        start = motion.start
        self.scores = [oracle.scores(client_major(start, group), group.data["inputs"]) for group in batch]
        self.held = [torch.zeros_like(scores) for scores in self.scores]  # (m, T, outputs, examples)
        self.totals = [coefficients.flatten(2).transpose(0, 1) for coefficients in self.held]
        self.rate = motion.client_lr[None]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
        losses = []
        relative, scale = self.motion.at(step, width)
        for group, first, whole in zip(self.batch, self.scores, self.held, strict=True):
            coefficients = whole[:, :width]
            scores = first[:, :width]
            if step > 0 and self.motion.moving:
                pulled = (coefficients * self.rate[:, :width]).flatten(1, 2)
                scores = torch.baddbmm(scores.flatten(1, 2), pulled, self.oracle.products_of(group), alpha=-1)
                scores = scores.view(coefficients.shape)
            else:
                scores = scores.clone()
            if want_loss:
                losses.append(self.oracle.mean_loss(scores, group))
            if step > 0 and scale is not None:
                coefficients.mul_(scale)
            slopes = self.oracle.loss.slopes_(scores, group.data["wanted"][:, None])
            if self.motion.relative_rates is not None:
                slopes *= relative
            if group.weights is None:
                coefficients.add_(slopes, alpha=1 / slopes.shape[-1])
            else:
                coefficients.addcmul_(slopes, group.weights[:, None, None])
        return torch.cat(losses, 1) if want_loss else None

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (T, M, P)."""
        start = self.motion.start
        total = replicas(start, start.shape[0], self.batch[-1].stop, start.shape[-1])
        for group, coefficients, summed in zip(self.batch, self.held, sums, strict=True):
            clients, trials, outputs, examples = coefficients.shape
            rows = summed.transpose(0, 1).reshape(clients, trials * outputs, examples)
            inputs = group.data["inputs"]
            out = client_major(total, group).view(clients, trials * outputs, -1)[..., : inputs.shape[-1]]
            torch.bmm(rows, inputs, out=out)
        return total


class ChosenCoefficients(Frame):
    """Like `Coefficients`, for mini-batches: each step reads and changes the coefficients of its own examples.

    A shift of the motion has one coefficient per trial and client.

    Args:
        oracle: oracle of the model.
        clients: (M,) client ids.
        distinct: the examples of the round.
        motion: motion of the models.
    """

    def __init__(
        self, oracle: ExampleSpace, clients: NDArray[np.int64], distinct: DistinctExamples, motion: Motion
    ) -> None:
        self.oracle = oracle
        self.motion = motion
        self.chosen = []
        parts = zip(distinct.batch, distinct.places, distinct.weights, distinct.rows, strict=True)
        for group, places, weights, rows in parts:
            products = oracle.products.among(clients[group.start : group.stop], rows, group.data["inputs"])
            self.chosen.append(ChosenRows.of(group, places, weights, products, oracle, motion))
        self.totals = [chosen.held.flatten(0, 1).transpose(0, 1) for chosen in self.chosen]
        self.shifts = motion.start.new_zeros(motion.start.shape[0], distinct.batch[-1].stop, 1)
        if motion.shift is not None:
            self.totals.append(self.shifts)
        self.rate = motion.client_lr.view(-1, 1)

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
        losses, loss = [], self.oracle.loss
        relative, scale = self.motion.at(step, width)
        for chosen in self.chosen:
            clients = min(chosen.group.stop, busy) - chosen.group.start
            if clients <= 0:
                break
            rows = chosen.rows[step, :clients].flatten()
            coefficients = chosen.held[:clients, :, :width]
            scores = chosen.scores[:, :width].index_select(0, rows)
            if step > 0 and self.motion.moving:
                near = chosen.products.index_select(0, rows)
                moved = torch.bmm(near.view(clients, -1, coefficients.shape[1]), coefficients.flatten(2)).view(
                    clients, -1, *coefficients.shape[2:]
                )
                if chosen.shifted is not None:
                    shift = self.shifts[:width, chosen.group.start :][:, :clients].transpose(0, 1)
                    shifted = chosen.shifted[:, :width].index_select(0, rows).view(moved.shape)
                    moved.addcmul_(shifted, shift[:, None])
                scores.addcmul_(moved.view(scores.shape), self.rate[:width], value=-1)
            targets = chosen.wanted.index_select(0, rows)[:, None]
            weights = None if chosen.weights is None else chosen.weights[step, :clients]
            if want_loss:
                by_example = loss.losses(scores, targets, -1).view(clients, -1, width)
                losses.append((by_example.mean(1) if weights is None else (by_example * weights[..., None]).sum(1)).T)
            if step > 0 and scale is not None:
                coefficients.mul_(scale[..., 0])
            slopes, alpha = loss.slopes_(scores, targets, -1), 1 / chosen.rows.shape[2]
            if weights is not None:
                slopes, alpha = slopes * weights.reshape(-1, 1, 1), 1.0
            if self.motion.relative_rates is not None:
                slopes *= relative if isinstance(relative, float) else relative[..., 0]
            chosen.held.flatten(0, 1)[:, :width].index_add_(0, rows, slopes, alpha=alpha)
        if self.motion.shift is not None:
            if scale is not None:
                self.shifts[:width, :busy] *= scale
            self.shifts[:width, :busy] += relative
        return torch.cat(losses, 1) if want_loss else None

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (T, M, P)."""
        start, shift = self.motion.start, self.motion.shift
        total = unset_replicas(start, start.shape[0], self.chosen[-1].group.stop, start.shape[-1])
        for chosen, summed in zip(self.chosen, sums[: len(self.chosen)], strict=True):
            clients, examples = chosen.held.shape[:2]
            rows = summed.transpose(0, 1).reshape(clients, examples, -1).transpose(1, 2)
            inputs = chosen.group.data["inputs"]
            out = client_major(total, chosen.group).view(*rows.shape[:2], -1)
            out[..., inputs.shape[-1] :].zero_()
            torch.bmm(rows, inputs, out=out[..., : inputs.shape[-1]])
        return total if shift is None else total.addcmul_(shift, sums[-1])

    def mean(self, sums: list[Tensor], weights: Tensor) -> Tensor:
        """(T, 1, P) weighted mean over the clients: one product with the inputs of all of them."""
        start, shift = self.motion.start, self.motion.shift
        total = start.new_zeros((start.shape[0], 1, start.shape[-1]))
        models = total.view(start.shape[0] * self.oracle.outputs, -1)
        for chosen, summed in zip(self.chosen, sums[: len(self.chosen)], strict=True):
            clients, examples = chosen.held.shape[:2]
            client_weights = weights[chosen.group.start : chosen.group.stop]
            rows = summed.transpose(0, 1).reshape(clients, -1) * client_weights[:, None]
            inputs = chosen.group.data["inputs"].flatten(0, 1)
            models[:, : inputs.shape[1]].addmm_(rows.view(clients * examples, -1).T, inputs)
        if shift is None:
            return total
        counts = sums[-1] * weights[:, None]
        return total.add_(shift * counts.sum(1, keepdim=True) if shift.shape[1] == 1 else counts.mT @ shift)


@dataclass(frozen=True)
class ChosenRows:
    """The tensors of a group of clients in example space. Rows are the examples of one client after the other.

    Args:
        group: the clients' distinct examples.
        rows: (steps, m, batch_size) rows of each step.
        weights: (steps, m, batch_size) weights of these examples; None is the plain mean.
        products: (rows, examples) inner products of a row's inputs with all inputs of its client.
        wanted: (rows, outputs) targets.
        scores: (rows, T, outputs) scores of the models at the start.
        shifted: (rows, T, outputs) scores of the motion's shift; None without one.
        held: (m, examples, T, outputs) coefficients; those of one example lie together.
    """

    group: Group
    rows: Tensor
    weights: Tensor | None
    products: Tensor
    wanted: Tensor
    scores: Tensor
    shifted: Tensor | None
    held: Tensor

    @staticmethod
    def of(
        group: Group,
        places: Tensor,
        weights: Tensor | None,
        products: Tensor,
        oracle: ExampleSpace,
        motion: Motion,
    ) -> ChosenRows:
        """The tensors at the start of a round."""
        clients, examples, _ = group.data["inputs"].shape
        rows = places + examples * torch.arange(clients, device=places.device)[:, None]
        targets = group.data["wanted"].transpose(1, 2).flatten(0, 1)
        scores = oracle.scores_of_rows(motion.start, group)
        shifted = None if motion.shift is None else oracle.scores_of_rows(motion.shift, group)
        coefficients = torch.zeros_like(scores).view(clients, examples, *scores.shape[1:])
        return ChosenRows(group, rows, weights, products.flatten(0, 1), targets, scores, shifted, coefficients)
