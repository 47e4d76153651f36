"""Curvature and noise at the initial model (`trainers.curvature`), against problems whose answers are known."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import trainers
from trainers import curvature
from trainers.curvature import CLIENT_STEPS, MOST_CLIENTS, estimate_curvature, ritz, useful_curvature
from trainers.engine.packs.build import build_model, default_device


def quadratic(**more: Any) -> trainers.TrialSpec:
    generator = np.random.default_rng(3)
    factors = generator.standard_normal((5, 6, 6))
    task = {
        "name": "quadratic",
        "hessians": (factors @ np.swapaxes(factors, 1, 2) / 6 + 0.1 * np.eye(6)).tolist(),
        "centers": generator.standard_normal((5, 6)).tolist(),
        **more,
    }
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}
    return trainers.parse({"task": task, "method": method, "rounds": 100, "seed": 0})


def digits(**more: Any) -> trainers.TrialSpec:
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}
    document = {"task": {"name": "digits", "clients": 40}, "method": method, "rounds": 50, "seed": 0, "batch_size": 20}
    return trainers.parse({**document, **more})


def test_the_eigenvalues_of_quadratics_are_exact() -> None:
    spec = quadratic()
    hessians = np.array(spec.task.document["hessians"])
    measured = estimate_curvature(spec)
    assert measured.smoothness == pytest.approx(np.linalg.eigvalsh(hessians.mean(0))[-1], rel=0.01)
    largest = np.linalg.eigvalsh(hessians)[:, -1]
    assert measured.client_smoothness == pytest.approx(np.quantile(largest, [0, 0.5, 1]), rel=0.01)
    assert hessians.shape[1] <= CLIENT_STEPS  # as many steps of Lanczos as dimensions are exact
    assert measured.gradient_noise == 0


def test_the_distance_to_the_minimum_of_a_quadratic_is_exact_where_all_directions_are_useful() -> None:
    task = {"name": "quadratic", "hessians": [[[2.0, 0], [0, 1.0]]], "centers": [[3.0, 4.0]]}
    method = {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 1}
    measured = estimate_curvature(trainers.parse({"task": task, "method": method, "rounds": 100}))
    assert (measured.smoothness, measured.useful_curvature, measured.distance) == (2.0, 1.0, 5.0)


def test_the_noise_is_that_of_the_batch() -> None:
    one = estimate_curvature(quadratic(gradient_noise=0.5)).gradient_noise
    assert one == pytest.approx(0.5 * math.sqrt(6), rel=0.3)
    assert estimate_curvature(digits()).gradient_noise > 1.5 * estimate_curvature(digits(batch_size=80)).gradient_noise
    assert estimate_curvature(digits(batch_size=None)).gradient_noise == 0


def test_the_curvature_of_softmax_regression_is_that_of_its_hessian() -> None:
    """Power iteration with differences of gradients in float64."""
    spec = digits(dtype="float64", task={"name": "digits", "clients": 10}, weighting="uniform")
    _, model = build_model(spec, default_device("cpu"))
    oracle, params = model.oracles["autograd"], model.start(None, 0).view(1, 1, -1)
    batch = model.source(0, None, "shuffled").round(0, np.arange(10)).full()
    vector = torch.randn(params.shape, dtype=params.dtype, generator=torch.Generator().manual_seed(0))
    for _ in range(60):
        ahead, behind = (oracle.value_and_grad(params + sign * 1e-4 * vector, batch)[1].mean(1) for sign in (1, -1))
        product = (ahead - behind).view(1, 1, -1) / 2e-4
        vector = product / product.norm()
    assert estimate_curvature(spec).smoothness == pytest.approx(float(product.norm()), rel=0.01)


def test_what_is_measured_is_bounded_and_depends_on_the_trial_alone() -> None:
    assert estimate_curvature(digits()) == estimate_curvature(digits())
    assert estimate_curvature(digits()).clients == MOST_CLIENTS
    assert estimate_curvature(digits(task={"name": "digits", "clients": 10})).clients == 10


def test_larger_models_are_measured_on_less_and_the_largest_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = estimate_curvature(digits())
    monkeypatch.setattr(curvature, "MOST_FLOPS", 2e7)
    part = estimate_curvature(digits())
    assert curvature.LEAST_CLIENTS <= part.clients < whole.clients
    assert part.smoothness == pytest.approx(whole.smoothness, rel=0.3)
    monkeypatch.setattr(curvature, "MOST_FLOPS", 1e5)
    with pytest.raises(trainers.SpecError, match=r"operations to measure"):
        estimate_curvature(digits())


def test_ritz_values_of_a_small_matrix_are_its_eigenvalues() -> None:
    factor = torch.as_tensor(np.random.default_rng(0).standard_normal((5, 5)))
    matrix = factor @ factor.T
    start = torch.ones(5, dtype=torch.float64)
    values, squares = ritz(lambda vector: matrix @ vector, start, 16)
    assert values == pytest.approx(np.linalg.eigvalsh(matrix.numpy()))
    assert squares.sum() == pytest.approx(5.0)
    assert len(ritz(lambda vector: matrix @ vector, 0 * start, 16)[0]) == 0


def test_a_direction_is_useful_only_if_the_rounds_reach_it() -> None:
    values, squares = np.array([0.01, 1.0]), np.array([0.01, 1.0])
    assert useful_curvature(values, squares, rounds=1)[0] == 1.0
    assert useful_curvature(values, squares, rounds=1000)[0] == 0.01


def test_a_loss_without_positive_curvature_is_refused() -> None:
    with pytest.raises(trainers.SpecError, match="must have positive curvature"):
        useful_curvature(np.array([-1.0]), np.array([1.0]), rounds=10)
