"""What gradient alignment promises, as slopes over shrinking step sizes: one round of every method, many rates at once.

Dandi, Barba and Jaggi, "Implicit Gradient Alignment in Distributed and Federated Learning", theorems 1, 2, 4 and 5.
"""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.cohort import Cohort, Counters
from trainers.engine.state import State
from trainers.hyper import describe
from trainers.methods import aligned_linear_scaling, fedavg, fedga, gradalign, linear_scaling, scaffold
from trainers.models import quadratic, softmax
from trainers.problem import Examples, Problem, Quadratics
from trainers.server import sgd

RATES = np.array([4e-2, 2e-2, 1e-2, 5e-3])
CLIENTS = 4


def quadratics():
    generator = np.random.default_rng(1)
    roots = generator.standard_normal((CLIENTS, 4, 4))
    hessians = roots @ roots.transpose(0, 2, 1) / 4 + 0.3 * np.eye(4)
    train = Quadratics(hessians, generator.standard_normal((CLIENTS, 4)), np.zeros(CLIENTS))
    return quadratic.build(Problem("quadratic", train), torch.float64, torch.device("cpu"))


def logistic():
    generator = np.random.default_rng(2)
    sizes = np.full(CLIENTS, 12)
    inputs = 1.5 * generator.standard_normal((sizes.sum(), 3))
    targets = generator.integers(0, 3, sizes.sum())
    targets[:6], targets[12:18] = 0, 1  # clients that differ
    train = Examples(inputs, targets, 12 * np.arange(CLIENTS), sizes)
    return softmax.build(Problem("softmax", train), torch.float64, torch.device("cpu"))


class Losses:
    """The clients' losses, and one round of a method at several rates side by side."""

    def __init__(self, model):
        self.model = model
        self.oracle = next(oracle for oracle in model.oracles.values())
        self.source = model.source(0, None, "with_replacement")
        self.full = self.source.round(0, np.arange(CLIENTS)).full()
        values = np.random.default_rng(3).standard_normal(model.layout.count)
        self.start = model.start(values.tolist(), 0).view(1, 1, -1)

    def gradients(self, params):
        """(T, clients, P) at models (T, 1 or clients, P)."""
        return self.oracle.value_and_grad(params, self.full)[1]

    def gradient(self, params):
        return self.gradients(params).mean(1, keepdim=True)

    def slope_of_misalignment(self, params):
        """Mean of (H_i - H)(g_i - g); H_i (g_i - g) have the same mean."""
        gradients = self.gradients(params)
        return self.oracle.hvp(params, self.full, gradients - gradients.mean(1, keepdim=True)).mean(1, keepdim=True)

    def round(self, method, rates, server_lr=None, start=None, **settings):
        """(T, 1, P) models after a round with client_lr = server_lr = rates, unless told otherwise."""
        count = len(rates)
        given = {"client_lr": rates, "displacement_source": "full", **settings}
        rows = {}
        for item in describe(method.Hyper):
            if item.name != "server_lr":
                value = given.get(item.name, item.default)
                rows[item.name] = column(value, count) if item.traced and value is not None else value
        hyper = method.Hyper(server_lr=column(rates if server_lr is None else server_lr, count), **rows)
        optimizer = sgd.Hyper(momentum=column(0.0, count), nesterov=False)
        start = self.start.repeat(count, 1, 1) if start is None else start
        state = State(start, sgd.init(optimizer, start), sgd, optimizer, hyper.server_lr)
        batches = self.source.round(0, np.arange(CLIENTS))
        weights = torch.full((CLIENTS,), 1 / CLIENTS, dtype=torch.float64)
        counters = Counters.zero(count)
        cohort = Cohort(self.oracle, batches, weights, self.model.layout.count, counters, np.ones(count, bool))
        return method.round(hyper, state, cohort).params

    def descent(self, steps, rates):
        """(T, 1, P) after steps of gradient descent on the mean loss."""
        params = self.start.repeat(len(rates), 1, 1)
        for _ in range(steps):
            params = params - column(rates, len(rates)) * self.gradient(params)
        return params

    def sequential(self, rates, orders):
        """(T, 1, P), the mean over the orders of one step of SGD on every client after the other."""
        ends = []
        for order in orders:
            params = self.start.repeat(len(rates), 1, 1)
            for client in order:
                params = params - column(rates, len(rates)) * self.gradients(params)[:, client : client + 1]
            ends.append(params)
        return torch.stack(ends).mean(0)


ORDERS = list(itertools.permutations(range(CLIENTS)))


def column(values, count):
    held = np.broadcast_to(values, count).copy()
    return torch.as_tensor(held).view(-1, 1, 1)


def sizes(remainder):
    return remainder[:, 0].norm(dim=-1).numpy()


def slope(remainder, over=RATES):
    """Power of the rate with which a remainder shrinks."""
    return np.polyfit(np.log(over), np.log(sizes(remainder)), 1)[0]


def third_order(clients, remainder, exact):
    """Whether a remainder is of third order, or none where quadratics have none."""
    if exact and isinstance(clients.model, quadratic.Quadratic):
        return sizes(remainder).max() < 1e-14
    return slope(remainder) == pytest.approx(3, abs=0.25)


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


def test_linear_scaling_is_the_mean_sgd_to_first_order_and_aligned_to_second(clients):
    mean = clients.sequential(RATES, ORDERS)
    assert slope(clients.round(linear_scaling, RATES) - mean) == pytest.approx(2, abs=0.15)
    assert slope(clients.round(aligned_linear_scaling, RATES) - mean) == pytest.approx(3, abs=0.15)


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
