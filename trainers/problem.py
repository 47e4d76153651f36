"""The contract of a task, and its result for the engine: a model by name, federated data, the optimum if known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainers.hyperparameters import Hyperparameter
from trainers.target_kinds import Kind

MOST_CLIENTS = 10_000_000
"""Largest number of clients of a synthetic task."""

WHOLE = "iub"
"""Kinds of NumPy types that hold whole numbers."""

PADDING = -1
"""Fills the targets of an example after its last token."""

MOST_DRAWN = 100_000_000
"""Largest number of elements of a synthetic task: 0.8 GB. Random matrices of this size take minutes to draw."""


@dataclass(frozen=True)
class Examples:
    """Examples of all clients, concatenated: client i owns rows offsets[i] .. offsets[i] + sizes[i].

    Args:
        inputs: (examples, ...) numbers of any type, already scaled for classification. Models of numbers convert them
            to the trial's dtype; models of word ids get whole numbers as int64.
        targets: (examples,) class numbers, or numbers (examples,) or (examples, outputs) to predict, of any type, or
            (examples, positions) tokens to predict, or (examples, tags) True for tags of the example, or numbers of the
            items that pair with the inputs.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client, at least 1.
        kind: kind of the targets; None derives it from their type: floats are numbers, whole numbers are classes.
        central: (examples,) True for test examples of the server's population; None if populations are not separate.
        tests: number of test clients; the clients after them are for validation. None: all are test clients.
        people: number of held-out clients among the test clients; those after them are the server's. None: all.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    offsets: NDArray[np.int64]  # (clients,)
    sizes: NDArray[np.int64]  # (clients,)
    kind: Kind | None = None
    central: NDArray[np.bool_] | None = None
    tests: int | None = None
    people: int | None = None

    def __post_init__(self) -> None:
        if self.kind is None:
            object.__setattr__(self, "kind", "numbers" if self.targets.dtype.kind == "f" else "classes")

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.sizes)

    @property
    def held_out(self) -> slice:
        """The held-out clients."""
        return slice(self.tests if self.people is None else self.people)


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
class Regulariser:
    """A loss of the server that depends on the parameters alone; the model knows its formula by name.

    Args:
        name: one of `REGULARISERS` of the model's module.
        weight: multiplies it.
    """

    name: str
    weight: float

    @property
    def clients(self) -> int:
        """1, the server."""
        return 1


@dataclass(frozen=True)
class Problem:
    """One task, ready to train.

    Args:
        model: name of a module in trainers/models ("quadratic", "softmax", "linear", ...).
        train: the clients' data.
        test: held-out examples, grouped by test client, then those for validation; None if there are none.
        central: the server's own data (mixed federated learning), as a single client, or its loss without data; None
            if there is neither. The server's model is built with `central` in place of `train`.
        client_weights: (clients,) weights of the task, with sum 1; None leaves them to the trial's weighting. Models
            get the trial's weights.
        optimum: (d,) minimizer of the weighted mean loss, if known in closed form; or a function from the (clients,)
            weights to it. Models get the minimizer.
        model_settings: settings of the model besides the data (number of classes, weight of L2, ...).
    """

    model: str
    train: Examples | Quadratics | Regulariser
    test: Examples | None = None
    central: Examples | Quadratics | Regulariser | None = None
    client_weights: NDArray[np.float64] | None = None
    optimum: NDArray[np.float64] | Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict)


class TaskSettings(Protocol):
    """A checked task, as returned by `parse` of its module; hashable by identity.

    `trainers.data.federated.Federated` implements it for tasks of examples.
    """

    @property
    def document(self) -> Mapping[str, Any]:
        """The task with all defaults filled in, JSON-compatible."""

    @property
    def clients(self) -> int:
        """Size of the population."""

    @property
    def dimension(self) -> int | None:
        """Number of parameters; None if the model decides."""

    @property
    def examples(self) -> Any:
        """(clients,) number of training examples of each client; None if they cannot be counted."""

    @property
    def test(self) -> tuple[Any, ...] | None:
        """Rows of each test client; None for a task with losses in closed form, whose clients adapt on their losses."""

    @property
    def central(self) -> Any:
        """The server's own data; None if it has none."""

    @property
    def smoothness(self) -> float | None:
        """Largest curvature of any client's loss; None if not known."""

    @property
    def metrics(self) -> tuple[str, ...] | None:
        """Metrics of an evaluation; None is the METRICS of the module."""


@runtime_checkable
class Task(Protocol):
    """A module in trainers/tasks. Attributes and functions with a value or body here are optional.

    Attributes:
        DTYPE: default type of parameters and inputs.
        BATCHING: default way to draw batches.
        WEIGHTING: default weighting of the clients, where examples can be counted; always uniform where they cannot.
        METRICS: metrics of an evaluation.
        QUALITY: the metric that studies compare, unless they name another.
        MODEL: name of the model, unless a document names another.
        AFFINE: rounds with exact gradients are affine maps of the model, so that results also show predicted curves.
        SETTINGS: settings in a document, for documentation.
    """

    DTYPE: Literal["float32", "float64"]
    BATCHING: Literal["with_replacement", "shuffled"]
    METRICS: tuple[str, ...]
    WEIGHTING: Literal["uniform", "examples"] = "examples"
    QUALITY: str = "test_accuracy"
    MODEL: str = "softmax"
    AFFINE: bool = False
    SETTINGS: tuple[Hyperparameter, ...] = ()

    @abstractmethod
    def parse(self, document: Mapping[str, Any], path: str) -> TaskSettings:
        """The task that a document describes; checks everything, including that the data is there.

        Args:
            document: {"name": ..., settings}.
            path: dotted path of the document, such as "task".
        """

    @abstractmethod
    def build(self, settings: Any, dtype: str) -> Problem:
        """The problem to train on.

        Args:
            settings: from `parse`.
            dtype: type of the trial, "float32" or "float64", to which models of numbers convert the inputs.
        """

    def stamp(self, document: Mapping[str, Any]) -> Hashable:
        """A value that changes when the data of the document changes, for example a file.

        Args:
            document: the document, not checked yet.
        """
        return None
