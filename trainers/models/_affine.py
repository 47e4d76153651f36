"""Affine models: the base of softmax regression, linear regression and logistic regression.

A model is one tensor "weight" (outputs, inputs + 1), with the bias in the last column and rows padded to 16 numbers.
Inputs have a 1 in that column (with the model setting "bias" false there is no such column). So the scores, gradients
and Hessian-vector products of all trials of a client are one matrix product each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.engine.batches.examples import ExampleSource
from trainers.engine.layout import Layout, aligned
from trainers.engine.memory import owned, tensor_of
from trainers.engine.oracles.autograd import Autograd
from trainers.engine.oracles.oracle import Batch, Oracle, client_major, example_weights
from trainers.models._evaluation import Evaluation, row_weights
from trainers.models._example_space import InnerProducts
from trainers.models._losses import Loss
from trainers.models._stacked import ExampleSpace, Stacked
from trainers.models._targets import ClassTargets, NumberTargets, targets_of
from trainers.problem import Examples, Problem
from trainers.trial.passes import PassEnd

_EVALUATED = 1 << 22  # scores computed at once in an evaluation
_MOST_PADS = 1 << 24  # numbers; rows of data are padded, which makes products faster, if no more pads are needed


class Affine:
    """An affine model and its data on a device.

    Args:
        problem: a problem with Examples.
        loss: loss of the scores.
        outputs: number of scores.
        targets: (rows, outputs) targets of the scores, for training, booleans or numbers; or (rows,) int64 class
            numbers, which take less memory and stand for targets of 1 for the class and 0 elsewhere.
        test_targets: targets of the test examples, in the same form; None without test examples.
        classifies: whether the largest score is a prediction of the class.
        dtype: type of all tensors.
        device: device of all tensors.
    """

    explosion = 1e3

    def __init__(
        self,
        problem: Problem,
        loss: Loss,
        outputs: int,
        targets: NDArray[Any],
        test_targets: NDArray[Any] | None,
        classifies: bool,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        train = problem.train
        if not isinstance(train, Examples):
            raise TypeError(f"this model must get Examples, got {type(train).__name__}")
        self.loss = loss
        kind = targets_of(problem, train)
        if kind.classifies is not classifies:  # whole numbers may be numbers to predict
            kind = ClassTargets(outputs) if classifies else NumberTargets(outputs)
        self.kind = kind
        self.classifies = classifies
        self.like = torch.empty(0, dtype=dtype, device=device)
        self.features = math.prod(train.inputs.shape[1:])
        self.columns = self.features + int(problem.model_settings.get("bias", True))
        self.layout = Layout.of({"weight": (outputs, self.columns)}, padded_rows=("weight",))
        self.optimum = None if problem.optimum is None else torch.as_tensor(problem.optimum, device=device)
        self.clients = train.clients
        self.examples: NDArray[np.int64] | None = train.sizes
        self.offsets, self.sizes = train.offsets, train.sizes
        self.labels = train.targets if classifies else None
        weights = problem.client_weights
        self.client_weights = np.full(self.clients, 1 / self.clients) if weights is None else np.asarray(weights)
        self.inputs, self.wanted = self._held(train.inputs), self._targets(targets)
        self.test: tuple[Tensor, Tensor] | None = None
        self.test_clients = problem.test
        if problem.test is not None and test_targets is not None:
            self.test = self._held(problem.test.inputs), self._targets(test_targets)
        self.stacked = Stacked(loss, outputs, self.columns)
        self.oracles: Mapping[str, Oracle] = {
            "stacked": self.stacked,
            "example_space": ExampleSpace(
                loss, outputs, self.columns, InnerProducts(self.inputs, self.offsets, self.sizes)
            ),
            "autograd": Autograd(self.layout, self._example_losses),
        }

    def start(self, init: Sequence[float] | None, seed: int) -> Tensor:
        """The (P,) initial model; without `init` it is 0."""
        if init is None:
            return self.like.new_zeros(self.layout.size)
        return self.layout.row(torch.tensor(init, dtype=torch.float64).to(self.like))

    def torch_module(self, params: Tensor) -> nn.Module:
        """A new module with these parameters (P,), in evaluation mode, on the CPU."""
        weight = self.layout.views(params)["weight"].cpu()
        linear = nn.Linear(self.features, len(weight), bias=self.columns > self.features, dtype=weight.dtype)
        tensors = {"weight": weight[:, : self.features], "bias": weight[:, -1]}
        linear.load_state_dict({name: tensors[name] for name in linear.state_dict()})
        return nn.Sequential(nn.Flatten(), linear).eval()

    def source(
        self,
        seed: int,
        batch_size: int | None,
        batching: str,
        end: PassEnd = "joined",
        round_batches: int | None = None,
    ) -> ExampleSource:
        """The batches of a trial."""
        data = self.gather, self.offsets, self.sizes
        return ExampleSource(*data, seed, batch_size, batching, self.like, None, end, self.labels, round_batches)

    def gather(self, rows: Tensor) -> dict[str, Tensor]:
        """The inputs (m, examples, row) and targets (m, outputs, examples) of rows (m, examples)."""
        flat = rows.reshape(-1)
        inputs = self.inputs.index_select(0, flat).view(*rows.shape, -1)
        targets = self.wanted.index_select(0, flat).view(*rows.shape, *self.wanted.shape[1:])
        return {"inputs": inputs, "wanted": self._by_output(targets).contiguous()}

    def evaluate(
        self, params: Tensor, reports: Collection[str] = (), drawn: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """The measures of the targets' kind (`trainers.target_kinds`) over all test examples, (T,) each.

        If the optimum is known, the metrics are instead loss, the mean over the clients, and distance, to the optimum.

        Args:
            params: (T, 1, P).
            reports: those of `trainers.target_kinds.REPORTS` add their metrics.
            drawn: indices of the test clients to measure; None is all of them.
        """
        if self.optimum is not None:
            away = self.layout.vector(params[:, 0]).double() - self.optimum
            return {"loss": self.full_loss(params, self.client_weights), "distance": away.norm(dim=-1)}
        if self.test is None or self.test_clients is None:
            return {}
        return Evaluation(self.kind, reports).metrics(
            self.test_clients, self.test, drawn, partial(self._columns, params)
        )

    def full_loss(self, params: Tensor, weights: NDArray[np.float64]) -> Tensor:
        """(T,) weighted mean over all clients of their mean losses.

        Args:
            params: (T, 1, P).
            weights: (clients,) weights with sum 1.
        """
        rows = row_weights(len(self.inputs), self.offsets, self.sizes, weights)
        loss = self._columns(params, self.inputs, self.wanted, ("loss",))["loss"]
        return loss.double() @ torch.as_tensor(rows, device=loss.device)

    def _columns(self, params: Tensor, inputs: Tensor, targets: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """Columns of measures of all examples, (T, rows) each: numbers of the models' type, others float64."""
        chunk = max(1, _EVALUATED // (params.shape[0] * self.stacked.outputs))
        shape = (params.shape[0], len(inputs))
        dtypes = dict.fromkeys(("loss", "right"), params.dtype)
        columns = {name: params.new_empty(shape, dtype=dtypes.get(name, torch.float64)) for name in names}
        for start in range(0, len(inputs), chunk):
            rows = slice(start, start + chunk)
            scores = self.stacked.scores(params.transpose(0, 1), inputs[None, rows])[0]  # (T, outputs, chunk)
            some_targets = targets[rows]
            if "loss" in columns:
                columns["loss"][:, rows] = self.loss.losses(scores, self._by_output(some_targets[None])[0])
            if self.classifies and some_targets.dim() > 1:
                some_targets = some_targets.argmax(1)
            for name in columns.keys() - {"loss"}:
                columns[name][:, rows] = self.kind.column(name, scores.transpose(1, 2), some_targets)
        return columns

    def accuracy(self, params: Tensor, batch: Batch) -> Tensor | None:
        """(T, M) accuracies on batches; None for a regression."""
        if not self.classifies:
            return None
        accuracies = []
        for group in batch:
            scores = self.stacked.scores(client_major(params, group), group.data["inputs"])
            right = scores.max(2).indices == group.data["wanted"].argmax(1)[:, None]
            weights = example_weights(group, right.shape[-1], params)
            accuracies.append((right * weights[:, None]).sum(-1).T)
        return torch.cat(accuracies, 1)

    def _held(self, inputs: NDArray[Any]) -> Tensor:
        """(rows, row) flattened inputs with the 1 for the bias, padded with zeros if that takes little memory."""
        padded = aligned(self.columns)
        row = padded if len(inputs) * (padded - self.columns) <= _MOST_PADS else self.columns
        rows = self.like.new_zeros((len(inputs), row))
        rows[:, : self.features] = tensor_of(inputs).reshape(len(inputs), -1)
        rows[:, self.features : self.columns] = 1
        return rows

    def _targets(self, targets: NDArray[Any]) -> Tensor:
        """Targets or class numbers on the device; booleans stay booleans, which take less memory."""
        as_given = targets.ndim == 1 or targets.dtype == np.bool_
        return tensor_of(targets, device=self.like.device) if as_given else owned(targets, self.like)

    def _by_output(self, targets: Tensor) -> Tensor:
        """(m, outputs, examples) targets of targets (m, examples, outputs) or class numbers (m, examples)."""
        if targets.dim() == 3:
            return targets.transpose(1, 2).to(self.like.dtype)
        zeros = self.like.new_zeros(len(targets), self.stacked.outputs, targets.shape[1])
        return zeros.scatter_(1, targets[:, None], 1)

    def _example_losses(self, tensors: Mapping[str, Tensor], data: Mapping[str, Tensor]) -> Tensor:
        scores = tensors["weight"] @ data["inputs"][:, : self.columns].T
        return self.loss.losses(scores, data["wanted"])
