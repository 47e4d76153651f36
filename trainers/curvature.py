"""Curvature and gradient noise of a task at its initial model, measured with Hessian-vector products.

Lanczos (see Golub & Meurant, "Matrices, Moments and Quadrature with Applications", chapters 3 and 4) on the Hessian of
the mean loss begins with the gradient g. It gives eigenvalues e_j (Ritz values) and the square g_j^2 of the part of the
gradient in the direction of each, so that the loss of the quadratic model falls by sum_j g_j^2 / (2 e_j). Gradient
descent with rate 1 / L reaches the share 1 - (1 - e_j / L)^(2 rounds) of term j. The smallest useful curvature is the
smallest e_j among the steepest directions that make up the share `USEFUL` of the fall that is reached. The largest
eigenvalue of each client's Hessian is from a few steps of Lanczos for all clients at once.

The amount of computation depends on the trial alone, never on a clock: at most `MOST_CLIENTS` clients and
`MOST_EXAMPLES` of each, and fewer of both where these would take more than `MOST_FLOPS` operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import randomness
from trainers.engine.evaluation.flops import gradient_flops
from trainers.engine.oracles.oracle import Batch, Model, Oracle, RoundBatches
from trainers.engine.packs.build import build_model, default_device, first_model, training_weights
from trainers.errors import SpecError
from trainers.trial.document import TrialSpec

LEAST_CLIENTS, MOST_CLIENTS = 4, 32
LEAST_EXAMPLES, MOST_EXAMPLES = 32, 256
MOST_FLOPS, MARGIN = 4e10, 5
"""Intended operations, about 5 s of one core; a model whose least sizes need `MARGIN` times as many is refused."""

MEAN_STEPS, CLIENT_STEPS, DRAWS = 16, 8, 8
"""Steps of Lanczos for the mean loss and for each client, and batches of each client."""

USEFUL = 0.9
DIGITS = 3

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LossEstimate:
    """The measured numbers, with three significant digits, so that they seldom depend on the machine.

    Args:
        smoothness: largest eigenvalue of the Hessian of the mean loss.
        useful_curvature: smallest eigenvalue that matters within the trial's rounds; at most `smoothness`.
        client_smoothness: smallest, median and largest over the clients of the largest eigenvalue of each.
        distance: distance to the minimum of the quadratic model, in the useful directions.
        gradient_noise: standard deviation of a client's batch gradient, root mean square over the clients.
        client_spread: root mean square distance of the clients' gradients from their mean.
        clients: how many clients were measured.
    """

    smoothness: float
    useful_curvature: float
    client_smoothness: tuple[float, float, float]
    distance: float
    gradient_noise: float
    client_spread: float
    clients: int

    def to_json(self) -> dict[str, Any]:
        """The estimate as a mapping of JSON values."""
        return {**asdict(self), "client_smoothness": list(self.client_smoothness)}


def estimate_curvature(spec: TrialSpec) -> LossEstimate:
    """Measures the task of a trial at its initial model, on the CPU; with dtype bfloat16 in single precision.

    Args:
        spec: its task, initial model, batch size, rounds and seed matter; its method does not.

    Raises:
        SpecError: the loss has no positive curvature in the direction of its gradient, or the model is too large.
    """
    spec = replace(spec, dtype=spec.held_dtype)
    _, model = build_model(spec, default_device("cpu"))
    oracle = next(iter(model.oracles.values()))
    params = first_model(spec, model, spec.seed).view(1, 1, -1)
    batches, batch = _drawn(spec, model)
    weights = training_weights(spec, model)[batches.clients]
    mean = torch.as_tensor(weights / weights.sum()).to(params).view(1, -1, 1)
    gradients = oracle.value_and_grad(params, batch)[1]
    slope = (mean * gradients).sum(1, keepdim=True)

    def mean_product(vector: Tensor) -> Tensor:
        return (mean * oracle.hvp(params, batch, vector)).sum(1, keepdim=True)

    values, squares = ritz(mean_product, slope, MEAN_STEPS)
    useful, distance = useful_curvature(values, squares, spec.rounds)
    eigenvalues = _client_eigenvalues(oracle, params, batch, gradients)
    spread = math.sqrt(float((mean * (gradients - slope) ** 2).sum()))
    noise = _noise(oracle, params, batches, mean)
    numbers = [float(values.max()), useful, *np.quantile(eigenvalues, [0, 0.5, 1]).tolist(), distance, noise, spread]
    largest, useful, low, median, high, distance, noise, spread = (float(f"{x:.{DIGITS}g}") for x in numbers)
    return LossEstimate(largest, useful, (low, median, high), distance, noise, spread, len(batches.clients))


def ritz(product: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> tuple[Array, Array]:
    """Ritz values of a symmetric matrix, and the squares of the components of `start` that belong to them.

    Args:
        product: multiplies the matrix with a vector of the shape of `start`.
        start: the first vector; if it is 0, there are no values.
        steps: largest number of products.
    """
    length = float(start.norm())
    basis: list[Tensor] = [start / length] if length > 0 and math.isfinite(length) else []
    diagonal: list[float] = []
    beside: list[float] = []
    while basis and len(diagonal) < steps:
        vector = product(basis[-1])
        diagonal.append(float((vector * basis[-1]).sum()))
        for _ in range(2):  # twice, because float32 loses orthogonality
            for direction in basis:
                vector = vector - (vector * direction).sum() * direction
        norm = float(vector.norm())
        if not norm > 1e-5 * max(abs(value) for value in diagonal):
            break
        beside.append(norm)
        basis.append(vector / norm)
    if not diagonal or not np.isfinite(diagonal).all():
        return np.zeros(0), np.zeros(0)
    size = len(diagonal)
    tridiagonal = np.diag(diagonal) + np.diag(beside[: size - 1], 1) + np.diag(beside[: size - 1], -1)
    values, vectors = np.linalg.eigh(tridiagonal)
    return values, length**2 * vectors[0] ** 2


def useful_curvature(values: Array, squares: Array, rounds: int) -> tuple[float, float]:
    """(smallest useful curvature, distance to the minimum in the useful directions), as the module defines them.

    Args:
        values: Ritz values of the mean loss.
        squares: square of the gradient's component that belongs to each value.
        rounds: budget of a trial.

    Raises:
        SpecError: no value is positive.

    Examples:
        >>> import numpy as np
        >>> useful_curvature(np.array([1e-6, 0.5, 2.0]), np.array([1e-9, 1.0, 4.0]), rounds=100)
        (0.5, 2.23606797749979)
    """
    positive = (values > 0) & (squares > 0)
    if not positive.any():
        raise SpecError(
            "the loss must have positive curvature along its gradient at the initial model, got none", "task"
        )
    values, squares = values[positive][::-1], squares[positive][::-1]
    reached = squares / values * -np.expm1(2 * rounds * np.log1p(-np.minimum(values / values[0], 1 - 1e-12)))
    last = int(np.searchsorted(np.cumsum(reached), USEFUL * reached.sum()))
    last = min(last, len(values) - 1)
    return float(values[last]), math.sqrt(float((squares / values**2)[: last + 1].sum()))


def _drawn(spec: TrialSpec, model: Model) -> tuple[RoundBatches, Batch]:
    """The sampled clients with the trial's batches, and the examples on which curvature is measured."""
    count, size = min(model.clients, MOST_CLIENTS), None
    if model.examples is not None:
        count, size = _sizes(spec, model)
    clients = randomness.cohort(spec.seed, 0, model.clients, count)
    batches = model.source(spec.seed, spec.batch_size, spec.batching).round(0, clients)
    if model.examples is None or size is None or int(model.examples[clients].max()) <= size:
        return batches, batches.full()
    larger = model.source(spec.seed, size, "with_replacement").round(0, clients)
    return batches, larger.batch(0, len(clients))


def _sizes(spec: TrialSpec, model: Model) -> tuple[int, int]:
    """How many clients to measure, and on how many examples of each, so that the operations are bounded."""
    assert model.examples is not None
    flops = gradient_flops(model)
    if not math.isfinite(flops):  # recurrent layers
        flops = 6.0 * model.layout.count
    an_example = max(2 * (MEAN_STEPS + CLIENT_STEPS) * flops, 1.0)
    affordable = max(LEAST_EXAMPLES, int(MOST_FLOPS / LEAST_CLIENTS / an_example))
    size = min(int(model.examples.max()), MOST_EXAMPLES, affordable)
    a_client = size * an_example + (spec.batch_size or 0) * DRAWS * flops
    least = min(model.clients, LEAST_CLIENTS)
    count = max(min(model.clients, MOST_CLIENTS, int(MOST_FLOPS / a_client)), least)
    if count * a_client > MARGIN * MOST_FLOPS:
        most, needed = MARGIN * MOST_FLOPS, count * a_client
        raise SpecError(f"its curvature must take at most {most:.1g} operations to measure, got {needed:.1g}", "task")
    return count, size


def _client_eigenvalues(oracle: Oracle, params: Tensor, batch: Batch, start: Tensor) -> Array:
    """(M,) largest eigenvalue of each client's Hessian, by Lanczos for all clients at once."""
    norms = start.norm(dim=-1, keepdim=True)
    vector, before = start / norms.clamp_min(torch.finfo(start.dtype).tiny), torch.zeros_like(start)
    length = torch.zeros_like(norms)
    diagonal, beside = [], []
    for _ in range(CLIENT_STEPS):
        product = oracle.hvp(params, batch, vector) - length * before
        along = (product * vector).sum(-1, keepdim=True)
        product = product - along * vector
        diagonal.append(along)
        length = product.norm(dim=-1, keepdim=True)
        settled = length <= 1e-5 * along.abs()
        length = torch.where(settled, 0.0, length)
        before, vector = vector, torch.where(settled, 0.0, product / length.clamp_min(1e-30))
        beside.append(length)
    main = torch.cat(diagonal, -1)[0].double().numpy()
    side = torch.cat(beside, -1)[0].double().numpy()[:, :-1]
    matrices = np.zeros((*main.shape, main.shape[1]))
    steps = np.arange(main.shape[1])
    matrices[:, steps, steps] = main
    matrices[:, steps[1:], steps[:-1]] = matrices[:, steps[:-1], steps[1:]] = side
    return np.asarray(np.linalg.eigvalsh(matrices)[:, -1])


def _noise(oracle: Oracle, params: Tensor, batches: RoundBatches, mean: Tensor) -> float:
    """Standard deviation of a client's batch gradient, root mean square over the clients."""
    if batches.always_full:
        return 0.0
    batches.prepare(DRAWS)
    count = len(batches.clients)
    drawn = torch.stack([oracle.value_and_grad(params, batches.batch(step, count))[1] for step in range(DRAWS)])
    squares = ((drawn - drawn.mean(0)) ** 2).sum(0) / (DRAWS - 1)
    return math.sqrt(float((mean * squares).sum()))
