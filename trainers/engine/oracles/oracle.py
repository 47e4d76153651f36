"""The contract of a model, and what the engine asks of it: oracles that give gradients, and sources that give batches.

Shapes: T trials of a pack, M clients of a cohort, P numbers of a flat model (see trainers/engine/layout.py). Parameters
are (T, M, P); the broadcast model is (T, 1, P) and stands for all M. The engine keeps replicas client-major in memory
(`replicas`), so that one product serves all trials of a client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.layout import Layout
from trainers.problem import Problem

if TYPE_CHECKING:
    from trainers.engine.oracles.frame import Frame, Motion


@dataclass(frozen=True, eq=False)
class Group:
    """Batches of neighbouring clients that have the same number of examples.

    Args:
        start: first client, counted within the cohort.
        stop: one past the last client.
        data: what the model's oracles need, by name, first dimension (stop - start): inputs, targets, rows ...
        weights: (stop - start, examples) of each example, sum 1 a client; None is the plain mean.
    """

    start: int
    stop: int
    data: Mapping[str, Tensor]
    weights: Tensor | None = None


Batch = Sequence[Group]
"""One step's batches of the first clients of a cohort; groups are in order and without gaps."""


class LocalGradients(Protocol):
    """Gradients for the local loop: one method, and two fast paths that are optional.

    Attributes:
        separate: it runs trials one after the other; the local loop then does so too, each from first to last step.
    """

    separate: bool = False

    def frame(self, batches: RoundBatches, motion: Motion) -> Frame | None:
        """Better coordinates for the local loop than replicas of the model (engine/local/loop.py), or None."""
        return None

    @abstractmethod
    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` (T, M, P), a slice of `replicas`, in place; the losses (T, M) if wanted."""


class Oracle(LocalGradients, Protocol):
    """Losses and gradients of one model, for all trials and clients at once.

    All oracles of a model give the same numbers (float64, 1e-10); which one is fastest depends on device and width.
    Oracles are derived from this class, which has the defaults of what is optional.

    Attributes:
        reference: only a plan chooses it, or a model that has nothing else.
        full_batches_only: it needs all data of every client in every step.
        accelerators_only: it is not timed on a CPU.
    """

    reference: bool = False
    full_batches_only: bool = False
    accelerators_only: bool = False

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses at params (T, M or 1, P)."""
        ...

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(T, M) mean losses and their (T, M, P) gradients."""
        ...

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) products of each client's Hessian with a vector (T, M or 1, P)."""
        ...


class RoundBatches(Protocol):
    """The batches of one cohort in one round; its clients are ordered by falling number of examples.

    Attributes:
        clients: (M,) numbers of the clients, in the order in which batches and replicas have them.
        always_full: whether the batch of every step is all data of every client.
    """

    clients: NDArray[np.int64]
    always_full: bool

    def prepare(self, local_steps: int) -> None:
        """Draws the batches of so many steps at once; more steps can be asked for later."""
        ...

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps in which each client passes so often over its own data, never rising."""
        ...

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step (from 0) for the first `clients` clients."""
        ...

    def full(self) -> Batch:
        """All data of every client."""
        ...


class Source(Protocol):
    """The batches of a whole trial."""

    def round(self, round_index: int, clients: NDArray[np.int64]) -> RoundBatches:
        """The batches of one round (from 0) for a cohort in any order."""
        ...

    def step_examples(self, clients_per_round: int) -> float:
        """Mean number of examples in the batches of one step of a cohort; a measure of work."""
        ...


class Model(Protocol):
    """One model with its data on a device.

    Attributes:
        layout: of its parameters.
        oracles: name -> oracle.
        clients: size of the population.
        client_weights: (clients,) sum 1, the task's own weights; uniform where it has none.
        examples: (clients,) numbers of examples; None where they cannot be counted.
        test_examples: examples of one evaluation; a measure of work.
        explosion: a training loss explodes when it rises above the first one by this many times max(1, |first|).
    """

    layout: Layout
    oracles: Mapping[str, Oracle]
    clients: int
    client_weights: NDArray[np.float64]
    examples: NDArray[np.int64] | None
    test_examples: int
    explosion: float

    def start(self, init: Sequence[float] | None, seed: int) -> Tensor:
        """The (P,) model that training starts from: `init` (true parameters), or the model's own start."""
        ...

    def source(self, seed: int, batch_size: int | None, batching: str) -> Source:
        """The batches of a trial."""
        ...

    def evaluate(self, params: Tensor, reports: Collection[str] = ()) -> dict[str, Tensor]:
        """Metrics (T,) of broadcast models (T, 1, P); "client_accuracy" in reports adds those of test clients."""
        ...

    def full_loss(self, params: Tensor, weights: NDArray[np.float64]) -> Tensor:
        """(T,) weighted mean over all clients of their losses on all their data; weights (clients,), sum 1."""
        ...

    def accuracy(self, params: Tensor, batch: Batch) -> Tensor | None:
        """(T, M) accuracies on batches; None for a model that has none."""
        ...


class ModelBuilder(Protocol):
    """A module in trainers/models. What has a value here is optional in a module, with this default.

    Attributes:
        Settings: dataclass of what a document may say of the model besides its name; None is nothing.
        TARGETS: what it learns: "classes", "numbers", or "none" of a task's examples.
    """

    Settings: type[Any] | None = None
    TARGETS: Literal["classes", "numbers", "none"] = "classes"

    @abstractmethod
    def build(self, problem: Problem, dtype: torch.dtype, device: torch.device) -> Model:
        """The model of a problem, on a device.

        Args:
            problem: with the data, and `model_settings` that hold the checked Settings.
            dtype: of parameters and inputs.
            device: of all tensors.
        """


def replicas(like: Tensor, trials: int, clients: int, size: int) -> Tensor:
    """A zero tensor (T, M, P) that lies client-major in memory."""
    return like.new_zeros((clients, trials, size)).transpose(0, 1)


def client_major(params: Tensor, group: Group) -> Tensor:
    """(m, T, P) view of the models of a group's clients; a broadcast model is repeated without a copy.

    Args:
        params: (T, M or 1, P).
        group: which clients.
    """
    clients = group.stop - group.start
    if params.shape[1] == 1:
        return params.transpose(0, 1).expand(clients, -1, -1)
    return params[:, group.start : group.stop].transpose(0, 1)


def example_weights(group: Group, examples: int, like: Tensor) -> Tensor:
    """(m, examples) weights of the examples of a group, sum 1 a client."""
    if group.weights is not None:
        return group.weights
    return torch.full((group.stop - group.start, examples), 1.0 / examples, dtype=like.dtype, device=like.device)
