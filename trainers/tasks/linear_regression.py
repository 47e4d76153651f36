"""Synthetic linear regression of clients that share a solution, at which every loss vanishes ("0 loss").

    {"name": "linear_regression", "clients": 5, "examples": 2000, "dimension": 10, "strong_convexity": 0.001,
     "smoothness": 1, "orientation": "same", "label_noise": 0, "data_seed": 0}

Client i has Gaussian features x, targets z = x' w* with one w* for all clients, and as loss the mean of
(x' w - z)^2 / 2; the model has no bias. The covariance of the features has the given eigenvalues, or `dimension` ones
from strong_convexity to smoothness, evenly spaced on a log scale; with orientation "random" axes differ by client.
examples is one number, or a list with a number for each client; with fewer than `dimension` examples a client alone
does not determine w*. label_noise above 0 ends interpolation: mini-batch steps then do not converge below a floor.

Clients have equal weights, unless client_weights gives others or the trial says `weighting: examples`. The metrics are
loss, the weighted mean of the clients' losses, and distance, the distance to w* (with label_noise, to the minimizer of
the weighted mean loss). `trainers.theory.mass_constants` has the constants that determine the speed of SGD and
of MaSS; with {"constants": "estimate"} the method `mass` estimates them from this task.

Source: the setting of "Exponential Convergence of FedAvg with MaSS for Linear Regression Problem with 0 Loss".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import regression
from trainers.data.client_weights import client_weights
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe, join, tunable
from trainers.problem import MOST_CLIENTS, MOST_DRAWN, Examples, Problem
from trainers.values import integer, shown

__all__ = ["Settings"]

DTYPE = "float64"
BATCHING = "with_replacement"
WEIGHTING = "uniform"
METRICS = ("loss", "distance")
QUALITY = "loss"
MODEL = "linear"


@dataclass(frozen=True)
class _Keys:
    """The keys of a document."""

    clients: int = tunable(5, low=1, high=MOST_CLIENTS, unit="clients", doc="size of the population")
    examples: Any = tunable(2000, kind="any", doc="of each client: a number, or a list of one for each")
    dimension: int = tunable(10, low=1, unit="parameters", doc="of the model")
    strong_convexity: float = tunable(1e-3, low=0, low_open=True, doc="smallest eigenvalue of the covariance")
    smoothness: float = tunable(1.0, low=0, low_open=True, doc="largest eigenvalue of the covariance")
    eigenvalues: tuple[float, ...] | None = tunable(
        None, low=0, low_open=True, doc="all of them, in place of these two"
    )
    orientation: str = tunable("same", choices=("same", "random"), doc="axes of the clients' covariances")
    label_noise: float = tunable(0.0, low=0, doc="standard deviation of the targets' noise; 0 is interpolation")
    client_weights: Any = tunable(None, kind="any", doc="one for each client, of sum 1; null is the trial's weighting")
    data_seed: int = tunable(0, low=0, doc="of w*, the features and the noise")


SETTINGS = describe(_Keys)


@dataclass(frozen=True, eq=False)
class Settings:
    """A checked task.

    Args:
        document: the task with all defaults filled in, JSON-compatible.
        sizes: number of examples of each client.
        eigenvalues: (d,) eigenvalues of the covariance.
        client_weights: (clients,) weights with sum 1; None leaves them to the trial's weighting.
        model: name of the model in trainers/models.
    """

    document: Mapping[str, Any]
    sizes: tuple[int, ...]
    eigenvalues: NDArray[np.float64]
    client_weights: NDArray[np.float64] | None = None
    model: str = field(default=MODEL)

    @property
    def clients(self) -> int:
        """Size of the population."""
        return len(self.sizes)

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return len(self.eigenvalues)

    @cached_property
    def examples(self) -> NDArray[np.int64]:
        """Number of examples of each client, (clients,)."""
        return np.array(self.sizes, np.int64)

    @property
    def test(self) -> None:
        """None: clients adapt on their own losses."""

    @property
    def central(self) -> None:
        """None: the server has no data."""

    @property
    def smoothness(self) -> None:
        """None: not known."""

    @property
    def metrics(self) -> None:
        """None: always METRICS."""

    @cached_property
    def drawn(self) -> tuple[Examples, NDArray[np.float64]]:
        """The examples and w*."""
        document = self.document
        return regression.gaussian(
            self.sizes, self.eigenvalues, document["orientation"], document["label_noise"], document["data_seed"]
        )


def parse(document: Mapping[str, Any], path: str) -> Settings:
    """The task that a document describes.

    Args:
        document: {"name": "linear_regression", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types, sizes or ranges.
    """
    values = check(_Keys, document, path, other_keys=("name",))
    _refuse_large(values, path)
    if values["eigenvalues"] is None:
        low, high = values["strong_convexity"], values["smoothness"]
        if high < low:
            key_path = join(path, "smoothness")
            raise SpecError(f"{key_path} must be at least strong_convexity={low:g}, got smoothness={high:g}", key_path)
        eigenvalues = np.geomspace(low, high, values["dimension"]) if values["dimension"] > 1 else np.array([high])
    else:
        eigenvalues = np.array(values["eigenvalues"])
        low, high = float(eigenvalues.min()), float(eigenvalues.max())
        implied = {"dimension": len(eigenvalues), "strong_convexity": low, "smoothness": high}
        _refuse_others(values, implied, document, path)
        values |= {**implied, "eigenvalues": eigenvalues.tolist()}
    sizes = _sizes(values["examples"], values["clients"], join(path, "examples"))
    weights = None
    if values["client_weights"] is not None:
        weights = client_weights(values["client_weights"], len(sizes), join(path, "client_weights"))
        values["client_weights"] = weights.tolist()
    return Settings({"name": "linear_regression", **values}, sizes, eigenvalues, weights)


def build(settings: Settings, dtype: str) -> Problem:
    """The problem to train on; its optimum is w*, or, with label noise, the minimizer of the weighted mean loss.

    Args:
        settings: from `parse`.
        dtype: "float32" or "float64"; not used, since the data are always passed in float64.
    """
    train, solution = settings.drawn
    noisy = settings.document["label_noise"] > 0
    return Problem(
        model=settings.model,
        train=train,
        client_weights=settings.client_weights,
        optimum=partial(regression.least_squares, train) if noisy else solution,
        model_settings={"bias": False},
    )


def _refuse_large(values: Mapping[str, Any], path: str) -> None:
    """Raises a SpecError if the features, or the rotations of the axes, exceed the size limit of synthetic tasks."""
    clients, dimension = values["clients"], values["dimension"]
    if values["eigenvalues"] is not None:
        dimension = len(values["eigenvalues"])
    key_path = join(path, "examples")
    if isinstance(values["examples"], (list, tuple)):
        rows = sum(integer(item, f"{key_path}.{index}") for index, item in enumerate(values["examples"]))
    else:
        rows = clients * integer(values["examples"], key_path)
    axes = dimension**2 if values["orientation"] == "random" else 0
    for what, count in (("examples of all clients x dimension", rows * dimension), ("dimension^2", axes)):
        if count > MOST_DRAWN:
            raise SpecError(f"{path} must be smaller: {what} must be at most {MOST_DRAWN}, got {count:.3g}", path)


def _sizes(value: Any, clients: int, path: str) -> tuple[int, ...]:
    """Examples of each client."""
    listed = isinstance(value, (list, tuple))
    if listed and len(value) != clients:
        raise SpecError(f"{path} must be a number, or one for each of {clients} clients, got {len(value)}", path)
    items = [integer(item, f"{path}.{index}") for index, item in enumerate(value)] if listed else [integer(value, path)]
    for item in items:
        if item < 1:
            raise SpecError(f"{path} must be at least 1, got examples={shown(item)}", path)
    return tuple(items if listed else items * clients)


def _refuse_others(
    values: Mapping[str, Any], implied: Mapping[str, Any], document: Mapping[str, Any], path: str
) -> None:
    """Raises a SpecError if a key next to eigenvalues contradicts them."""
    for key, meant in implied.items():
        if key in document and values[key] != meant:
            key_path = join(path, key)
            raise SpecError(
                f"{key_path} must be {shown(meant)} as eigenvalues imply, or left out, got {key}={shown(values[key])}",
                key_path,
            )
