"""What gradient alignment promises, as slopes over shrinking step sizes: one round of every method, many rates at once.

Dandi, Barba and Jaggi, "Implicit Gradient Alignment in Distributed and Federated Learning", theorems 1, 2, 4 and 5.
"""

import itertools

import numpy as np
import pytest
import torch

from trainers.methods import aligned_linear_scaling, fedavg, fedga, gradalign, linear_scaling, regularized_gd, scaffold
from trainers.models import quadratic

from .alignment import CLIENTS, RATES, Losses, column, logistic, quadratics, sizes, slope, third_order

ORDERS = list(itertools.permutations(range(CLIENTS)))


@pytest.fixture(params=[quadratics, logistic], scope="module")
def clients(request):
    return Losses(request.param())


def test_mean_sgd_is_descent_with_alignment_to_second_order(clients):
    """Theorem 1, over all orders, and over one order and its reverse."""
    pull = CLIENTS * column(RATES, 4) ** 2 / 2 * clients.slope_of_misalignment(clients.start)
    descent = clients.descent(CLIENTS, RATES)
    for orders in (ORDERS, [(2, 0, 1, 3), (3, 1, 0, 2)]):
        mean = clients.sequential(RATES, orders)
        assert slope(mean - descent + pull) == pytest.approx(3, abs=0.15)
        assert slope(mean - descent) == pytest.approx(2, abs=0.15)


def test_gradalign_with_half_the_rate_is_the_mean_sgd_to_second_order(clients):
    params = clients.start.repeat(4, 1, 1)
    for _ in range(CLIENTS):
        params = clients.round(gradalign, RATES, displacement=RATES / 2, start=params)
    assert slope(params - clients.sequential(RATES, ORDERS)) == pytest.approx(3, abs=0.15)


def test_descent_on_the_loss_plus_alignment_is_the_mean_sgd_to_second_order(clients):
    """Appendix A.4: as many steps on the loss plus half the rate times the misalignment, with Hessian products."""
    params = clients.start.repeat(4, 1, 1)
    for _ in range(CLIENTS):
        params = clients.round(regularized_gd, RATES, misalignment_weight=RATES / 2, start=params)
    assert slope(params - clients.sequential(RATES, ORDERS)) == pytest.approx(3, abs=0.15)


def test_linear_scaling_is_the_mean_sgd_to_first_order_and_aligned_to_second(clients):
    mean = clients.sequential(RATES, ORDERS)
    assert slope(clients.round(linear_scaling, RATES) - mean) == pytest.approx(2, abs=0.15)
    assert slope(clients.round(aligned_linear_scaling, RATES) - mean) == pytest.approx(3, abs=0.15)


def test_clients_of_unequal_weights_step_by_their_share_of_the_rate(clients):
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    mean = clients.sequential(RATES, ORDERS, sizes=(CLIENTS * weights).tolist())
    assert slope(clients.round(linear_scaling, RATES, weights=weights) - mean) == pytest.approx(2, abs=0.15)
    assert slope(clients.round(aligned_linear_scaling, RATES, weights=weights) - mean) == pytest.approx(3, abs=0.15)


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


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
@pytest.mark.parametrize("form", ["once", "each_step"])
def test_a_round_of_fedga_adds_it_for_every_local_step(clients, steps, form):
    """Theorem 4, with displacement equal to the rate: terms of order client_lr^2 displacement are there too."""
    work = {"local_steps": steps, "displacement": RATES, "displacement_form": form}
    gain = clients.round(fedga, RATES, **work) - clients.round(fedavg, RATES, local_steps=steps)
    remainder = gain + steps * column(RATES, 4) ** 2 * clients.slope_of_misalignment(clients.start)
    assert third_order(clients, remainder, exact=steps == 1)
    assert slope(gain) == pytest.approx(2, abs=0.25)


@pytest.mark.parametrize("steps", [2, 5, 10])
def test_a_round_of_scaffold_adds_it_for_every_pair_of_local_steps(clients, steps):
    """Theorem 5."""
    rates = RATES / steps
    gain = clients.round(scaffold, rates, local_steps=steps) - clients.round(fedavg, rates, local_steps=steps)
    pull = clients.slope_of_misalignment(clients.start)
    assert slope(gain) == pytest.approx(2, abs=0.15)
    remainder = gain + steps * (steps - 1) / 2 * column(rates, 4) ** 2 * pull
    assert third_order(clients, remainder, exact=steps == 2)


@pytest.mark.parametrize("steps", [2, 5, 10])
def test_local_steps_misalign_and_scaffold_takes_it_back(clients, steps):
    """Against gradient descent: FedAvg raises the misalignment, SCAFFOLD and FedGA's equivalent leave it."""
    rates = RATES / steps
    descent = clients.descent(steps, rates)
    push = steps * (steps - 1) / 2 * column(rates, 4) ** 2 * clients.slope_of_misalignment(clients.start)
    drift = clients.round(fedavg, rates, local_steps=steps) - descent
    assert third_order(clients, drift - push, exact=steps == 2)
    corrected = clients.round(scaffold, rates, local_steps=steps) - descent
    if steps == 2:
        assert sizes(corrected).max() < 1e-15
    else:
        assert slope(corrected) == pytest.approx(3, abs=0.15)
    equivalent = rates * (steps - 1) / 2
    aligned = clients.round(fedga, rates, local_steps=steps, displacement=equivalent) - descent
    assert slope(aligned) == pytest.approx(3, abs=0.15)
