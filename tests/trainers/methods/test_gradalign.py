"""GradAlign: its limit, theorems 2 and 3, and the mean of SGD over the clients in every order."""

import numpy as np
import pytest
import torch

from trainers.methods import gradalign
from trainers.models import quadratic

from .alignment import CLIENTS, ORDERS, RATES, Losses, column, misalignment, quadratics, sizes, slope
from .four_clients import same


def test_gradalign_without_displacement_is_fedsgd():
    same({"name": "gradalign", "server_lr": 0.1, "displacement": 0.0}, {"name": "fedsgd", "server_lr": 0.1})


def test_a_step_of_gradalign_adds_the_slope_of_the_misalignment(clients):
    """Theorem 2: at a fixed rate the remainder is of second order in the displacement, and linear in the rate."""
    pull = clients.slope_of_misalignment(clients.start)

    def remainder(rate, displacements):
        rates = np.full(4, rate)
        step = clients.round(gradalign, rates, displacement=displacements) - clients.descent(1, rates)
        return step + rate * column(displacements, 4) * pull

    found = remainder(0.1, RATES)
    if isinstance(clients.model, quadratic.Quadratic):
        assert sizes(found).max() < 1e-15
        return
    assert slope(found) == pytest.approx(2, abs=0.1)
    np.testing.assert_allclose(sizes(remainder(0.2, RATES)), 2 * sizes(found), rtol=1e-8)


def test_gradalign_with_half_the_rate_is_the_mean_sgd_to_second_order(clients):
    params = clients.start.repeat(4, 1, 1)
    for _ in range(CLIENTS):
        params = clients.round(gradalign, RATES, displacement=RATES / 2, start=params)
    assert slope(params - clients.sequential(RATES, ORDERS)) == pytest.approx(3, abs=0.15)


def objective(clients, params, displacement):
    """(T,) mean loss plus displacement times misalignment."""
    return clients.oracle.value(params, clients.full).mean(1) + displacement * misalignment(clients, params)


def spectra(clients):
    """Largest eigenvalues of the mean loss and of the misalignment, on quadratics."""
    hessians = clients.model.hessians
    mean = hessians.mean(0)
    gaps = hessians - mean
    spread = (gaps @ gaps).mean(0)
    return float(torch.linalg.eigvalsh(mean)[-1]), float(torch.linalg.eigvalsh(spread)[-1])


def test_gradalign_descends_on_quadratics_wherever_theorem_3_says():
    """rate at most 1 / (2 smoothness), displacement below smoothness / misalignment_smoothness: 2,000 random draws."""
    clients = Losses(quadratics())
    smoothness, misalignment_smoothness = spectra(clients)
    generator = np.random.default_rng(0)
    rates = generator.uniform(0, 0.5 / smoothness, 2000)
    displacements = generator.uniform(0, smoothness / misalignment_smoothness, 2000)
    start = torch.zeros((2000, 1, clients.start.shape[-1]), dtype=torch.float64)
    start[..., : clients.model.dimension] = torch.as_tensor(3 * generator.standard_normal((2000, 1, 4)))
    weights = torch.as_tensor(displacements)
    end = clients.round(gradalign, rates, displacement=displacements, start=start)
    falls = objective(clients, start, weights) - objective(clients, end, weights)
    assert falls.min() > 0
    # the step itself bounds the fall from below: smoothness |step|^2, for quadratics have no third derivative
    moved = (end - start).square().sum((1, 2))
    assert (falls >= smoothness * moved - 1e-12).all()
