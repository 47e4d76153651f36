"""The misalignment's slope, displaced gradients and SGD over the clients, on which tests of gradient alignment rest.

Dandi, Barba and Jaggi, "Implicit Gradient Alignment in Distributed and Federated Learning": theorem 1 and lemma 1. The
other theorems are with the methods that they are about.
"""

import numpy as np
import pytest
import torch

from trainers.models import quadratic

from .alignment import CLIENTS, ORDERS, RATES, column, misalignment, slope


def test_the_slope_of_the_misalignment(clients):
    """By central differences."""
    steps = 1e-6 * torch.eye(clients.start.shape[-1], dtype=torch.float64)[: clients.model.layout.count].unsqueeze(1)
    found = (misalignment(clients, clients.start + steps) - misalignment(clients, clients.start - steps)) / 2e-6
    wanted = clients.slope_of_misalignment(clients.start)[0, 0, : len(found)]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-8)


def test_a_displaced_gradient_is_the_hessian_times_the_displacement_to_second_order(clients):
    """Lemma 1; exact on quadratics."""
    direction = torch.randn(clients.start.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    direction[..., clients.model.layout.count :] = 0
    direction = direction / direction.norm()
    lengths = torch.tensor([0.2, 0.1, 0.05, 0.025], dtype=torch.float64).view(-1, 1, 1)
    straight = clients.gradients(clients.start) + lengths * clients.oracle.hvp(clients.start, clients.full, direction)
    remainder = clients.gradients(clients.start + lengths * direction) - straight
    if isinstance(clients.model, quadratic.Quadratic):
        assert remainder.abs().max() < 1e-14
        return
    ratio = remainder.norm(dim=-1) / lengths[:, 0] ** 2
    assert ratio.min() > 1e-3
    np.testing.assert_allclose(ratio[2], ratio[3], rtol=0.05)


def test_mean_sgd_is_descent_with_alignment_to_second_order(clients):
    """Theorem 1, over all orders, and over one order and its reverse."""
    pull = CLIENTS * column(RATES, 4) ** 2 / 2 * clients.slope_of_misalignment(clients.start)
    descent = clients.descent(CLIENTS, RATES)
    for orders in (ORDERS, [(2, 0, 1, 3), (3, 1, 0, 2)]):
        mean = clients.sequential(RATES, orders)
        assert slope(mean - descent + pull) == pytest.approx(3, abs=0.15)
        assert slope(mean - descent) == pytest.approx(2, abs=0.15)
