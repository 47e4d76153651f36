"""The contract of a model: oracles compute gradients, sources draw batches.

Shapes: T trials of a pack, M clients of a cohort, P numbers of a flat model (see trainers/engine/layout.py). Parameters
are (T, M, P); the broadcast model is (T, 1, P) and serves all M clients. The engine keeps replicas client-major in
memory (`replicas`), so that one product serves all trials of a client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainers.engine.layout import Layout
from trainers.problem import Problem
from trainers.target_kinds import Kind
from trainers.trial.passes import PassEnd

if TYPE_CHECKING:
    from trainers.engine.oracles.frame import Frame, Motion


@dataclass(frozen=True, eq=False)
class Group:
    """Batches of neighbouring clients that have the same number of examples.

    Args:
        start: index of the first client in the cohort.
        stop: one past the last client.
        data: tensors that the model's oracles need, by name, first dimension (stop - start): inputs, targets, rows ...
        weights: (stop - start, examples) weight of each example, with sum 1 per client; None is the plain mean.
        trials: trials with batches of their own; the first dimension of data and weights is then (stop - start) trials,
            client-major.
    """

    start: int
    stop: int
    data: Mapping[str, Tensor]
    weights: Tensor | None = None
    trials: int = 1

    def alone(self, client: int, start: int = 0) -> Group:
        """The batch of one client of the group, as a group of its own.

        Args:
            client: its index in the cohort.
            start: its index in the new group's cohort.
        """
        rows = slice(client - self.start, client - self.start + 1)
        data = {name: tensor[rows] for name, tensor in self.data.items()}
        return Group(start, start + 1, data, None if self.weights is None else self.weights[rows])


Batch = Sequence[Group]
"""The batches of one step for the first clients of a cohort. Groups are in order and leave no client out."""


@dataclass(frozen=True, eq=False)
class DistinctExamples:
    """The examples that the mini-batches of a round use, each once, however often it is drawn.

    Args:
        rows: for groups of neighbouring clients, (m, examples) rows of the training data, filled up to equal numbers by
            repeating a client's last one.
        places: for each group, (steps, m, batch_size) positions in it of the examples of each step, for as many steps
            as its first client takes.
        weights: for each group, (steps, m, batch_size) weights of these examples; None is the plain mean.
        gather: maps rows to the tensors that the model's oracles need.
    """

    rows: Sequence[NDArray[np.int64]]
    places: Sequence[Tensor]
    weights: Sequence[Tensor | None]
    gather: Callable[[NDArray[np.int64]], Mapping[str, Tensor]]

    @cached_property
    def batch(self) -> Batch:
        """The groups with their data."""
        stops = np.cumsum([len(rows) for rows in self.rows]).tolist()
        pairs = zip(stops, self.rows, strict=True)
        return tuple(Group(stop - len(rows), stop, self.gather(rows)) for stop, rows in pairs)


def first_clients(batch: Batch, clients: int) -> Batch:
    """The batches of the first `clients` clients."""
    parts = []
    for group in batch:
        if group.start >= clients:
            break
        part = slice(clients - group.start)
        data = {name: tensor[part] for name, tensor in group.data.items()}
        weights = None if group.weights is None else group.weights[part]
        parts.append(group if group.stop <= clients else Group(group.start, clients, data, weights))
    return tuple(parts)


Between = Callable[[slice], None] | None
"""Called with some clients after their gradients are computed and before they are used."""


class LocalGradients(Protocol):
    """Gradients for the local loop: one required method, and two optional fast paths.

    Attributes:
        separate: gains nothing from stacked trials; the local loop then runs each trial alone from first to last step.
        descends: `descend_` takes no more passes over the models than `add_gradient_`.
        client_by_client: clients are computed one by one, so each may take all its steps before the next one begins.
    """

    separate: bool = False
    descends: bool = False
    client_by_client: bool = False

    def frame(self, batches: RoundBatches, motion: Motion) -> Frame | None:
        """Cheaper coordinates for the local loop than replicas of the model (engine/local/loop.py), or None."""
        return None

    @abstractmethod
    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients in place to `total` (T, M, P), a slice of `replicas`; returns (T, M) losses on request."""

    def gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Overwrites the clients of the batch in `total`, padding included, with gradients; returns losses if asked."""
        total[:, : batch[-1].stop].zero_()
        return self.add_gradient_(params, batch, total, want_loss)

    def descend_(
        self, models: Tensor, batch: Batch, rate: Tensor, between: Between = None, want_loss: bool = False
    ) -> Tensor | None:
        """Subtracts rate times the gradients from the models in place; returns (T, M) losses on request.

        Args:
            models: (T, M, P), a slice of `replicas` with the clients of the batch.
            batch: batches of the clients.
            rate: (T, 1, 1).
            between: called with some clients of the batch when their gradients are known and their models still
                unchanged; it may change the models.
            want_loss: whether to return the losses.
        """
        total = replicas(models, *models.shape)
        loss = self.add_gradient_(models, batch, total, want_loss)
        if between is not None:
            between(slice(batch[-1].stop))
        models.addcmul_(total, rate, value=-1)
        return loss

    def at(self, models: Tensor) -> AbstractContextManager[None]:
        """A context within which `descend_` gets only these models of one client, (1, 1, P), in every step."""
        return nullcontext()


class Oracle(LocalGradients, Protocol):
    """Losses and gradients of one model, for all trials and clients at once.

    All oracles of a model give the same numbers (float64, 1e-10); which one is fastest depends on device and width.
    Oracles derive from this class, which has defaults for the optional members.

    Attributes:
        reference: used only if a plan names it or the model has no other oracle.
        accelerators_only: never timed on a CPU, hence chosen there only by a plan that names it.
        instead_of: name of an oracle that this one replaces on a CPU if it has a frame for the rounds of a pack.
    """

    reference: bool = False
    accelerators_only: bool = False
    instead_of: str | None = None

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses at params (T, M or 1, P)."""
        ...

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(T, M) mean losses and their (T, M, P) gradients."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        loss = self.add_gradient_(params, batch, total, want_loss=True)
        assert loss is not None
        return loss, total

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) products of each client's Hessian with a vector (T, M or 1, P)."""
        ...

    def bend_(self, params: Tensor, batch: Batch, vector: Tensor, rate: Tensor, between: Between = None) -> None:
        """Subtracts rate times the Hessian-vector products from the vector in place.

        Args:
            params: (T, M or 1, P).
            batch: batches of all clients.
            vector: (T, M, P), client-major.
            rate: (T, 1, 1).
            between: called with some clients when their products are known and their vectors still unchanged; it may
                change the vectors.
        """
        products = self.hvp(params, batch, vector)
        if between is not None:
            between(slice(batch[-1].stop))
        vector.addcmul_(products, rate, value=-1)


class StepBatches(Protocol):
    """What a frame needs of the batches of some clients in one round."""

    @property
    def clients(self) -> Sized:
        """The clients, of which only the number is used."""
        ...

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step (from 0) for the first `clients` clients."""
        ...


class RoundBatches(StepBatches, Protocol):
    """The batches of one cohort in one round. Clients are sorted by number of steps, then of examples, largest first.

    Attributes:
        clients: (M,) client ids, in the order of batches and replicas.
        work: (M,) share of its local steps that each client takes, largest first where all have the same number of
            steps; None if all clients take all steps.
        always_full: whether every step uses all data of every client.
    """

    clients: NDArray[np.int64]
    work: NDArray[np.float64] | None
    always_full: bool

    def prepare(self, local_steps: int, limits: NDArray[np.int64] | None = None) -> None:
        """Draws the batches of the first `local_steps` steps at once. Later steps can still be requested.

        Args:
            local_steps: number of steps.
            limits: (M,) most steps of each client, largest first; None is no limit.
        """
        ...

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps of `local_epochs` passes of each client over its own data, even if it takes only a part."""
        ...

    @property
    def full_gradients(self) -> NDArray[np.int64]:
        """(M,) mini-batch gradients that a gradient on all data of a client counts as: the batches of a pass."""
        ...

    @property
    def full_examples(self) -> NDArray[np.int64]:
        """(M,) examples of each client; 1 if losses are formulas without examples."""
        ...

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """(..., M) examples in each client's first `steps` (..., M) batches, each as often as a batch holds it."""
        ...

    def full(self) -> Batch:
        """All data of every client."""
        ...

    def distinct(self, steps: int) -> DistinctExamples | None:
        """The examples of the first `steps` steps; None unless batches are plain selections of a client's examples."""
        ...


class Source(Protocol):
    """The batches of a whole trial."""

    def round(
        self, round_index: int, clients: NDArray[np.int64], work: NDArray[np.float64] | None = None
    ) -> RoundBatches:
        """The batches of one round for a cohort, given in any order.

        Args:
            round_index: from 0.
            clients: (M,) client ids.
            work: (M,) share of its local steps that each client takes; None is all of them.
        """
        ...


class Model(Protocol):
    """One model with its data on a device.

    Attributes:
        layout: layout of its parameters.
        oracles: name -> oracle.
        clients: size of the population.
        client_weights: (clients,) weights with sum 1, of all metrics and, unless the trial sets others, of training;
            uniform if the problem has none.
        examples: (clients,) number of examples of each client; None if losses are formulas without examples.
        explosion: a training loss explodes when it exceeds the first one by this many times max(1, |first|).
    """

    layout: Layout
    oracles: Mapping[str, Oracle]
    clients: int
    client_weights: NDArray[np.float64]
    examples: NDArray[np.int64] | None
    explosion: float

    def start(self, init: Sequence[float] | None, seed: int) -> Tensor:
        """The (P,) initial model: `init` (true parameters), or the model's default."""
        ...

    def source(
        self,
        seed: int,
        batch_size: int | None,
        batching: str,
        end: PassEnd = "joined",
        round_batches: int | None = None,
    ) -> Source:
        """The batches of a trial.

        Args:
            seed: seed of the trial.
            batch_size: examples per step; None is all data of the client.
            batching: "with_replacement", "shuffled", "epochs" or "by_class".
            end: what becomes of the examples that are left at the end of a pass.
            round_batches: batches of a client in a round, if its passes go on over the rounds ("epochs"); None begins
                a new pass in each round.
        """
        ...

    def evaluate(
        self, params: Tensor, reports: Collection[str] = (), drawn: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """Metrics (T,) of broadcast models (T, 1, P): those of the task, and of `reports` in `target_kinds.REPORTS`.

        Args:
            params: (T, 1, P).
            reports: names of the trial's reports.
            drawn: indices of the test clients to measure; given only in trials with a sample of held-out clients.
        """
        ...

    def full_loss(self, params: Tensor, weights: NDArray[np.float64]) -> Tensor:
        """(T,) weighted mean over all clients of their losses on all their data; weights (clients,), sum 1."""
        ...

    def accuracy(self, params: Tensor, batch: Batch) -> Tensor | None:
        """(T, M) accuracies on batches, NaN of clients with nothing to predict; None if the model has none."""
        ...


Matrices = Sequence[tuple[slice, int]]
"""Matrices of a model, laid out without pads: the place of each in a row of parameters, and its number of rows."""


@runtime_checkable
class HasMatrices(Protocol):
    """A model with layers between its inputs and its scores."""

    def hidden_matrices(self) -> Matrices:
        """Its tensors of two or more dimensions, except embeddings and the layers at the inputs and at the scores."""
        ...


@runtime_checkable
class HasModule(Protocol):
    """A model that can leave Driftline as a plain torch module."""

    def torch_module(self, params: Tensor) -> nn.Module:
        """A new module from inputs (examples, ...) to scores (examples, outputs), in evaluation mode, on the CPU.

        Args:
            params: (P,).
        """
        ...


class ModelBuilder(Protocol):
    """A module in trainers/models. Attributes with a value here are optional and have that default.

    Attributes:
        Settings: dataclass of the model's settings in a trial document, besides its name; None if it has none.
        parse: checks these settings, given with their dotted path, in place of the dataclass; returns all of them.
        TARGETS: kind of targets that it learns: "classes", "numbers", "tags", "tokens", "pairs", several of these, the
            first of which is what it learns by default, "any", or "none" (it learns from no examples).
        DTYPES: values of a trial's dtype that it takes.
        PARTS: whether a document may train only some of its parameters, by name (`train`).
        EMBEDDINGS: whether it learns vectors of categories, for the features in `embedded` of the problem's
            model_settings (trainers.data.embeddings.Embedding).
        FIXED_START: whether its parameters start from the same numbers for every seed.
        REGULARISERS: names of losses of its parameters, which a mixed method's server may have in place of data. Then
            `build` gets a problem whose `train` is a Regulariser.
    """

    Settings: type[Any] | None = None
    parse: Callable[[dict[str, Any], str], dict[str, Any]] | None = None
    TARGETS: Kind | Literal["any", "none"] | tuple[Kind, ...] = "classes"
    DTYPES: tuple[str, ...] = ("float32", "float64")
    PARTS: bool = False
    EMBEDDINGS: bool = False
    FIXED_START: bool = False
    REGULARISERS: tuple[str, ...] = ()

    @abstractmethod
    def build(self, problem: Problem, dtype: torch.dtype, device: torch.device) -> Model:
        """The model of a problem, on a device.

        Args:
            problem: the data, and `model_settings` with the checked Settings.
            dtype: type of parameters, inputs and losses; with bfloat16 these are float32, and gradients are computed
                in bfloat16.
            device: device of all tensors.
        """


def twice_differentiable() -> AbstractContextManager[None]:
    """Computes attention by its definition, because torch's fused kernels have no second derivatives."""
    return sdpa_kernel(SDPBackend.MATH)


def replicas(like: Tensor, trials: int, clients: int, size: int) -> Tensor:
    """Zeros (T, M, P), client-major in memory."""
    return like.new_zeros((clients, trials, size)).transpose(0, 1)


def unset_replicas(like: Tensor, trials: int, clients: int, size: int) -> Tensor:
    """Uninitialized (T, M, P), client-major in memory, to be overwritten before it is read."""
    return like.new_empty((clients, trials, size)).transpose(0, 1)


def client_major(params: Tensor, group: Group) -> Tensor:
    """(m, T, P) view of the models of a group's m clients; a broadcast model is expanded, not copied.

    Args:
        params: (T, M or 1, P).
        group: the clients.
    """
    clients, models = group.stop - group.start, params.transpose(0, 1)
    if len(models) == clients:
        return models
    return models.expand(clients, -1, -1) if len(models) == 1 else models[group.start : group.stop]


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """(T, 1, P) mean of (T, M, P), or (T,) mean of (T, M), with weights (M,) of the clients or (T, M)."""
    if values.dim() == 2:
        return values @ weights if weights.dim() == 1 else (values * weights).sum(1)
    if weights.dim() == 2:
        return torch.bmm(weights.unsqueeze(1), values)
    trials, clients, size = values.shape
    if clients == 1:
        return values * weights
    flat = values.transpose(0, 1).reshape(clients, trials * size)
    return (weights @ flat).view(trials, 1, size)


def example_weights(group: Group, examples: int, like: Tensor) -> Tensor:
    """(m, examples) weights of the examples of a group, with sum 1 per client."""
    if group.weights is not None:
        return group.weights
    return torch.full((group.stop - group.start, examples), 1.0 / examples, dtype=like.dtype, device=like.device)
