"""Quadratic client losses, 0.5 (x - center)' hessian (x - center), to check the papers' theory by experiments.

Either given in full:

    {"name": "quadratic", "hessians": [[[2, 0], [0, 1]], ...], "centers": [[1, 0], ...]}

or generated, with "problem" one of

    random       clients, dimension, strong_convexity, smoothness, center_spread, data_seed
    two_clients  hessians 1 and 2, centers 1 and 1/2; the optimum is 2/3
    continuum    clients; curvatures i in [0.5, 2] of density 8i/15 with centers 1/i; the optimum is 5/7
    worst_case   strong_convexity, smoothness, center_bound, client_lr, gradient_weights, prox; attains the bounds

All of them take client_weights (except worst_case, which has its own) and gradient_noise, the standard deviation of the
noise that one example adds to each gradient coordinate. For mixed federated learning they also take central, the
server's own loss (with the same noise): {"hessian": [[1, 0], [0, 1]], "center": [0, 0]}. The optimum, the loss, the
excess loss (above the optimum's) and the distance of a task are those of the clients' losses alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import matrices, quadratics
from trainers.data.client_weights import client_weights
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe, join, refuse_unknown, tunable
from trainers.problem import MOST_CLIENTS, MOST_DRAWN, Problem, Quadratics
from trainers.spelling import hint
from trainers.values import number, shown

__all__ = ["Settings"]

DTYPE = "float64"
BATCHING = "with_replacement"
WEIGHTING = "uniform"
METRICS = ("loss", "excess_loss", "distance")
QUALITY = "excess_loss"
MODEL = "quadratic"
AFFINE = True
_SHARED = ("name", "problem", "client_weights", "gradient_noise", "central")


@dataclass(frozen=True)
class _Shared:
    """Keys of every quadratic task."""

    problem: str | None = tunable(
        None,
        choices=("random", "two_clients", "continuum", "worst_case"),
        doc="which losses to generate, in place of hessians and centers",
    )
    hessians: Any = tunable(None, kind="any", doc="(clients, d, d), symmetric positive definite")
    centers: Any = tunable(None, kind="any", doc="(clients, d), the minimizers of the clients")
    client_weights: Any = tunable(None, kind="any", doc="one for each client, of sum 1; null is uniform")
    gradient_noise: float = tunable(0.0, low=0, doc="deviation of what one example adds to each gradient coordinate")
    central: Any = tunable(
        None, kind="any", doc='{"hessian": ..., "center": ...}: the server\'s own loss, for mixed federated learning'
    )


@dataclass(frozen=True)
class _Random:
    """Clients with random Hessians with given extreme eigenvalues."""

    clients: int = tunable(10, low=1, high=MOST_CLIENTS, unit="clients", doc="size of the population")
    dimension: int = tunable(5, low=1, unit="parameters", doc="of the model")
    strong_convexity: float = tunable(1.0, low=0, low_open=True, doc="smallest eigenvalue of every Hessian")
    smoothness: float = tunable(10.0, low=0, low_open=True, doc="largest eigenvalue of every Hessian")
    center_spread: float = tunable(1.0, low=0, limit="0 is homogeneous clients", doc="rms norm of a center")
    data_seed: int = tunable(0, low=0, doc="of the Hessians and centers")


@dataclass(frozen=True)
class _TwoClients:
    """The toy problem with two clients; no settings."""


@dataclass(frozen=True)
class _Continuum:
    """The toy problem with a continuum of clients, as a finite population."""

    clients: int = tunable(1000, low=1, high=MOST_CLIENTS, unit="clients", doc="size of the population")


@dataclass(frozen=True)
class _WorstCase:
    """The instance that attains the bounds for a given method."""

    strong_convexity: float = tunable(1.0, low=0, low_open=True, doc="smallest eigenvalue of a Hessian")
    smoothness: float = tunable(10.0, low=0, low_open=True, doc="largest eigenvalue of a Hessian")
    center_bound: float = tunable(1.0, low=0, low_open=True, doc="norm of both centers")
    client_lr: float = tunable(low=0, doc="of the method that is to be at its worst")
    gradient_weights: tuple[float, ...] = tunable(low=0, doc="of the method")
    prox: float = tunable(0.0, low=0, doc="of the method")


_PROBLEMS: Mapping[str, type] = {
    "random": _Random,
    "two_clients": _TwoClients,
    "continuum": _Continuum,
    "worst_case": _WorstCase,
}
SETTINGS = (
    *describe(_Shared),
    *(
        replace(item, doc=f"with {name}: {item.doc}")
        for name, problem in _PROBLEMS.items()
        for item in describe(problem)
    ),
)
_BUILDERS: Mapping[str, Callable[..., Quadratics]] = {
    "random": quadratics.random,
    "two_clients": quadratics.two_clients,
    "continuum": quadratics.continuum,
}


@dataclass(frozen=True, eq=False)
class Settings:
    """A checked quadratic task.

    Args:
        document: the task with all defaults filled in, JSON-compatible.
        clients: size of the population.
        dimension: number of parameters.
        draw: makes the clients' quadratics.
        client_weights: (clients,) weights with sum 1; None is uniform.
        central: the server's own quadratic; None if it has none.
        model: name of the model in trainers/models.
    """

    document: Mapping[str, Any]
    clients: int
    dimension: int
    draw: Callable[[], Quadratics]
    client_weights: NDArray[np.float64] | None = None
    central: Quadratics | None = None
    model: str = field(default=MODEL)

    @cached_property
    def losses(self) -> Quadratics:
        """The clients' quadratics, drawn on first access; large ones take minutes."""
        return self.draw()

    @cached_property
    def smoothness(self) -> float:
        """Largest eigenvalue of any client's Hessian."""
        if self.dimension == 1:
            return float(self.losses.hessians.max())
        if self.document.get("problem") == "random":
            return float(self.document["smoothness"])  # known by construction
        return float(np.linalg.eigvalsh(self.losses.hessians).max())

    @property
    def test(self) -> None:
        """None: clients adapt on their own losses."""

    @property
    def metrics(self) -> None:
        """None: always METRICS."""

    @property
    def examples(self) -> None:
        """None: quadratics have no countable examples; a batch of any size can be drawn."""


def parse(document: Mapping[str, Any], path: str) -> Settings:
    """The task that a document describes.

    Args:
        document: {"name": "quadratic", ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown or missing keys, wrong sizes, or matrices that are not symmetric positive definite.
    """
    if "problem" in document and ("hessians" in document or "centers" in document):
        raise SpecError(f"{path} must have either problem or hessians and centers, got both: leave one out", path)
    filled: dict[str, Any] = {"name": "quadratic"}
    losses = _generated(document, path, filled) if "problem" in document else _given(document, path, filled)
    weights = losses.client_weights
    if document.get("client_weights") is not None:
        weights = client_weights(document["client_weights"], losses.clients, join(path, "client_weights"))
        filled["client_weights"] = weights.tolist()
    noise = number(document.get("gradient_noise", 0.0), join(path, "gradient_noise"))
    if noise < 0:
        key_path = join(path, "gradient_noise")
        raise SpecError(f"{key_path} must be at least 0, got gradient_noise={shown(noise)}", key_path)
    filled["gradient_noise"] = noise
    central: Quadratics | None = None
    if document.get("central") is not None:
        central = matrices.central(document["central"], losses.dimension, join(path, "central"))
        central = replace(central, gradient_noise=noise)
        filled["central"] = {"hessian": central.hessians[0].tolist(), "center": central.centers[0].tolist()}
    return replace(
        losses,
        draw=lambda: replace(losses.draw(), gradient_noise=noise),
        client_weights=weights,
        central=central,
    )


def build(settings: Settings, dtype: str) -> Problem:
    """The problem to train on; its optimum is exact.

    Args:
        settings: from `parse`.
        dtype: "float32" or "float64"; not used, since quadratics are always passed in float64.
    """
    return Problem(
        model=settings.model,
        train=settings.losses,
        central=settings.central,
        client_weights=settings.client_weights,
        optimum=quadratics.optimum(settings.losses, settings.client_weights),
    )


def _generated(document: Mapping[str, Any], path: str, filled: dict[str, Any]) -> Settings:
    name = document["problem"]
    key_path = join(path, "problem")
    if not isinstance(name, str) or name not in _PROBLEMS:
        raise SpecError(f"{key_path}: no quadratic problem {shown(name)}: {hint(name, _PROBLEMS)}", key_path)
    values = check(_PROBLEMS[name], document, path, other_keys=_SHARED)
    filled.update(problem=name, **{key: list(v) if isinstance(v, tuple) else v for key, v in values.items()})
    if "smoothness" in values and values["smoothness"] < values["strong_convexity"]:
        key_path = join(path, "smoothness")
        raise SpecError(
            f"{key_path} must be at least strong_convexity={shown(values['strong_convexity'])}, "
            f"got smoothness={shown(values['smoothness'])}",
            key_path,
        )
    if name in _BUILDERS:
        clients, dimension = values.get("clients", 2), values.get("dimension", 1)
        if clients * dimension**2 > MOST_DRAWN:
            key_path = join(path, "dimension" if dimension > 1 else "clients")
            raise SpecError(
                f"{key_path} must be small enough that clients x dimension^2 is at most {MOST_DRAWN}, "
                f"got {clients} x {dimension}^2",
                key_path,
            )
        return Settings(filled, clients, dimension, lambda: _BUILDERS[name](**values))
    if document.get("client_weights") is not None:
        key_path = join(path, "client_weights")
        raise SpecError(f"{key_path} must be left out: worst_case brings its own weights", key_path)
    if values["gradient_weights"][-1] == 0:
        key_path = join(path, "gradient_weights")
        raise SpecError(f"{key_path} must end with a weight above 0, got {shown(values['gradient_weights'])}", key_path)
    try:
        losses, weights = quadratics.worst_case(**values)
    except ValueError as error:
        raise SpecError(f"{path}: {error}", join(path, "client_lr")) from error
    return Settings(filled, losses.clients, losses.centers.shape[1], lambda: losses, weights)


def _given(document: Mapping[str, Any], path: str, filled: dict[str, Any]) -> Settings:
    refuse_unknown(document, [*_SHARED, "hessians", "centers"], path)
    for key in ("hessians", "centers"):
        if key not in document:
            raise SpecError(f"{join(path, key)} must be given (or a problem: {', '.join(_PROBLEMS)})", join(path, key))
    hessians = matrices.hessians(document["hessians"], join(path, "hessians"))
    centers = matrices.centers(document["centers"], hessians, join(path, "centers"))
    filled["hessians"], filled["centers"] = hessians.tolist(), centers.tolist()
    losses = Quadratics(hessians, centers, np.zeros(len(centers)))
    clients, dimension = centers.shape
    return Settings(filled, clients, dimension, lambda: losses)
