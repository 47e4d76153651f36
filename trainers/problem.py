"""The contract of a task, and what it hands to the engine: a model by name, federated data, the optimum if known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainers.hyperparameters import Hyperparameter

MOST_CLIENTS = 10_000_000
"""The most clients of a synthetic task."""

MOST_DRAWN = 100_000_000
"""The most numbers of a synthetic task: 0.8 GB. Random matrices of this size take minutes to draw."""


@dataclass(frozen=True)
class Examples:
    """Examples of all clients, concatenated: client i owns rows offsets[i] .. offsets[i] + sizes[i].

    Args:
        inputs: (examples, ...) floats; for classification already scaled.
        targets: (examples,) class numbers (int64) or regression targets (float).
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client, at least 1.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]  # (clients,)
    sizes: NDArray[np.int64]  # (clients,)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.sizes)


@dataclass(frozen=True)
class Quadratics:
    """Client losses 0.5 (x - center)' hessian (x - center) + constant.

    Args:
        hessians: (clients, d, d) symmetric positive definite.
        centers: (clients, d).
        constants: (clients,) added to each loss.
        gradient_noise: standard deviation of the noise that one example adds to each gradient coordinate; 0 is exact.
    """

    hessians: NDArray[np.float64]  # (clients, d, d)
    centers: NDArray[np.float64]  # (clients, d)
    constants: NDArray[np.float64]  # (clients,)
    gradient_noise: float = 0.0

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.centers)


@dataclass(frozen=True)
class Problem:
    """One task, ready to train.

    Args:
        model: name of a module in trainers/models ("quadratic", "softmax", "linear", ...).
        train: the clients' data.
        test: held-out examples, grouped by test client; None where there are none.
        central: the server's own data (mixed federated learning), as of a single client; None where there are none.
        client_weights: (clients,) sum 1, the task's own weights; None is uniform.
        optimum: (d,) minimizer of the weighted mean loss where it is known in closed form.
        model_settings: what the model needs besides the data (number of classes, weight of L2, ...).
    """

    model: str
    train: Examples | Quadratics
    test: Examples | None = None
    central: Examples | Quadratics | None = None
    client_weights: NDArray[np.float64] | None = None
    optimum: NDArray[np.float64] | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict)


class TaskSettings(Protocol):
    """A checked task, as `parse` of its module returns it; it is hashable, by identity.

    `trainers.data.federated.Federated` has all of this for tasks of examples.
    """

    @property
    def document(self) -> Mapping[str, Any]:
        """The task with all defaults filled in, JSON-able."""

    @property
    def clients(self) -> int:
        """Size of the population."""

    @property
    def dimension(self) -> int | None:
        """Number of parameters; None where the model decides."""

    @property
    def examples(self) -> Any:
        """(clients,) training examples of each client; None where they cannot be counted."""

    @property
    def test(self) -> tuple[Any, ...] | None:
        """Rows of each test client; None for a task of closed forms, whose clients adapt on their own losses."""

    @property
    def central(self) -> Any:
        """The server's own data; None where it has none."""

    @property
    def smoothness(self) -> float | None:
        """Largest curvature of any client's loss; None where it is not known."""

    @property
    def metrics(self) -> tuple[str, ...] | None:
        """What an evaluation reports; None is the METRICS of the module."""


@runtime_checkable
class Task(Protocol):
    """A module in trainers/tasks. What has a value or a body here is optional in a module, with this default.

    Attributes:
        DTYPE: of parameters and inputs, unless the trial says otherwise.
        BATCHING: how batches are drawn, unless the trial says otherwise.
        METRICS: what an evaluation reports.
        SETTINGS: what a document may say, for people.
    """

    DTYPE: Literal["float32", "float64"]
    BATCHING: Literal["with_replacement", "shuffled"]
    METRICS: tuple[str, ...]
    SETTINGS: tuple[Hyperparameter, ...] = ()

    @abstractmethod
    def parse(self, document: Mapping[str, Any], path: str) -> TaskSettings:
        """The task that a document describes; checks everything, that the data is there, too.

        Args:
            document: {"name": ..., settings}.
            path: dotted place of the document, as "task".
        """

    @abstractmethod
    def build(self, settings: Any, dtype: str) -> Problem:
        """The problem to train on.

        Args:
            settings: from `parse`.
            dtype: of the inputs, "float32" or "float64".
        """

    def stamp(self, document: Mapping[str, Any]) -> Hashable:
        """What tells one state of the document's data from another, as of a file that changes.

        Args:
            document: not checked yet.
        """
        return None
