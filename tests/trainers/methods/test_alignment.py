"""What the tests of gradient alignment rest on: the misalignment, displaced gradients, SGD over the clients, samples.

Dandi, Barba and Jaggi, "Implicit Gradient Alignment in Distributed and Federated Learning": theorem 1, lemma 1, and
theorems 4 and 5 in the mean over mini-batches. The other theorems are with the methods that they are about.
"""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.oracles.oracle import Group
from trainers.methods import fedavg, fedga, scaffold
from trainers.models import quadratic

from .alignment import CLIENTS, ORDERS, RATES, Losses, column, logistic, misalignment, sizes, slope


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


class Chosen:
    """Batches of a round in which every client takes the named parts of its data, one a step; full data besides."""

    always_full = False
    work = None

    def __init__(self, model, parts):
        self.model, self.parts = model, parts
        self.clients = np.arange(CLIENTS)
        self.whole = model.source(0, None, "with_replacement").round(0, self.clients).full()

    def prepare(self, local_steps, limits=None):
        pass

    def epoch_steps(self, local_epochs):
        return np.full(CLIENTS, local_epochs)

    full_gradients = np.full(CLIENTS, 2)
    full_examples = np.full(CLIENTS, 12)

    def examples(self, steps):
        return 6 * steps

    def batch(self, step, clients):
        half = 6 * self.parts[step] + np.arange(6)
        rows = torch.as_tensor(12 * self.clients[:clients, None] + half)
        return (Group(0, clients, self.model.gather(rows)),)

    def full(self):
        return self.whole


@pytest.mark.parametrize("method", ["fedga", "scaffold"])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_theorems_hold_in_the_mean_over_mini_batches(steps, method):
    """Theorems 4 and 5 with two mini-batches a client, drawn with replacement: all sequences, one after the other."""
    clients = Losses(logistic())

    def mean(method, **settings):
        ends = [
            clients.round(method, RATES, batches=Chosen(clients.model, parts), local_steps=steps, **settings)
            for parts in itertools.product(range(2), repeat=steps)
        ]
        return torch.stack(ends).mean(0)

    plain = mean(fedavg)
    pull = column(RATES, 4) ** 2 * clients.slope_of_misalignment(clients.start)
    if method == "fedga":
        assert slope(mean(fedga, displacement=RATES) - plain + steps * pull) == pytest.approx(3, abs=0.25)
        return
    gain = mean(scaffold) - plain
    if steps == 1:
        assert sizes(gain).max() < 1e-15
    else:
        assert slope(gain + steps * (steps - 1) / 2 * pull) == pytest.approx(3, abs=0.25)
