"""Identities behind gradient alignment: the misalignment, displaced gradients, descent, and what chance adds.

Dandi, Barba and Jaggi, "Implicit Gradient Alignment in Distributed and Federated Learning"; what is derived there or
beside it. The theorems themselves are in test_alignment_theorems.py.
"""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.oracles.oracle import Group
from trainers.methods import fedavg, fedga, gradalign, scaffold
from trainers.models import quadratic

from .alignment import CLIENTS, RATES, Losses, column, logistic, quadratics, sizes, slope, third_order
from .test_methods_remembering import DIGITS, HAND, WORK, models, same, task


@pytest.fixture(params=[quadratics, logistic], scope="module")
def clients(request):
    return Losses(request.param())


def misalignment(clients, params):
    """(T,) half the mean of |g_i - g|^2."""
    gradients = clients.gradients(params)
    return (gradients - gradients.mean(1, keepdim=True)).square().sum((1, 2)) / (2 * CLIENTS)


def test_the_slope_of_the_misalignment(clients):
    """By central differences; H_i - H may stand for H_i, because the gaps add up to 0."""
    steps = 1e-6 * torch.eye(clients.start.shape[-1], dtype=torch.float64)[: clients.model.layout.count].unsqueeze(1)
    found = (misalignment(clients, clients.start + steps) - misalignment(clients, clients.start - steps)) / 2e-6
    wanted = clients.slope_of_misalignment(clients.start)[0, 0, : len(found)]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-8)
    gaps = clients.gradients(clients.start)
    gaps = gaps - gaps.mean(1, keepdim=True)
    products = clients.oracle.hvp(clients.start, clients.full, gaps)
    common = torch.stack(
        [clients.oracle.hvp(clients.start, clients.full, gaps[:, i : i + 1]).mean(1) for i in range(CLIENTS)], 1
    )
    torch.testing.assert_close((products - common).mean(1), products.mean(1), rtol=0, atol=1e-13)


def test_other_ways_to_write_the_misalignment(clients):
    gradients = clients.gradients(clients.start)[0]
    found = misalignment(clients, clients.start)[0]
    pairs = (gradients.unsqueeze(0) - gradients.unsqueeze(1)).square().sum() / (4 * CLIENTS**2)
    torch.testing.assert_close(pairs, found, rtol=1e-12, atol=0)
    squares = (gradients.square().sum() / CLIENTS - gradients.mean(0).square().sum()) / 2
    torch.testing.assert_close(squares, found, rtol=1e-12, atol=0)
    assert (gradients - gradients.mean(0)).norm(dim=-1).max() <= (2 * CLIENTS * found).sqrt()


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


def test_a_fixed_rate_leaves_terms_linear_in_the_displacement():
    """On quadratics the remainder of theorem 4 is client_lr^2 displacement, exactly linear in the latter."""
    clients = Losses(quadratics())
    rates = np.full(4, 0.01)
    for steps in (2, 5, 10):
        plain = clients.round(fedavg, rates, local_steps=steps)
        gain = clients.round(fedga, rates, local_steps=steps, displacement=RATES) - plain
        pull = steps * column(rates * RATES, 4) * clients.slope_of_misalignment(clients.start)
        assert slope(gain + pull) == pytest.approx(1, abs=1e-6)
        assert sizes(gain + pull).max() > 1e-7


@pytest.mark.parametrize("steps", [2, 3])
def test_what_a_sample_of_clients_adds_to_descent_on_all(clients, steps):
    """SGD over some clients, against steps on the mean loss: less alignment without replacement, none with it."""
    pull = column(RATES, 4) ** 2 * clients.slope_of_misalignment(clients.start)
    descent = clients.descent(steps, RATES)
    without = clients.sequential(RATES, list(itertools.permutations(range(CLIENTS), steps)))
    share = steps * (steps - 1) / (2 * (CLIENTS - 1))
    assert third_order(clients, without - descent + share * pull, exact=steps == 2)
    assert slope(without - descent) == pytest.approx(2, abs=0.15)
    repeated = clients.sequential(RATES, list(itertools.product(range(CLIENTS), repeat=steps)))
    assert third_order(clients, repeated - descent, exact=True)  # independent factors on quadratics


class Chosen:
    """Batches of a round in which every client takes the named parts of its data, one a step; full data besides."""

    always_full = False

    def __init__(self, model, parts):
        self.model, self.parts = model, parts
        self.clients = np.arange(CLIENTS)
        self.whole = model.source(0, None, "with_replacement").round(0, self.clients).full()

    def prepare(self, local_steps):
        pass

    def epoch_steps(self, local_epochs):
        return np.full(CLIENTS, local_epochs)

    def batch(self, step, clients):
        half = 6 * self.parts[step] + np.arange(6)
        rows = torch.as_tensor(12 * self.clients[:clients, None] + half)
        return (Group(0, clients, self.model.gather(rows)),)

    def full(self):
        return self.whole


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_theorems_hold_in_the_mean_over_mini_batches(steps):
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
    assert slope(mean(fedga, displacement=RATES) - plain + steps * pull) == pytest.approx(3, abs=0.25)
    gain = mean(scaffold) - plain
    if steps == 1:
        assert sizes(gain).max() < 1e-15
    else:
        assert slope(gain + steps * (steps - 1) / 2 * pull) == pytest.approx(3, abs=0.25)


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


def test_gradalign_descends_at_a_minimizer_of_the_loss():
    """Theorem 3 where the gradient is 0 and the misalignment's is not."""
    clients = Losses(logistic())
    start = clients.start
    for _ in range(8000):
        start = start - 1.0 * (clients.gradient(start) + 0.05 * start)
    # the L2 part is weight decay: a part of every client's loss, and of no misalignment

    def whole(params, displacement):
        return objective(clients, params, displacement) + 0.025 * params.square().sum((1, 2))

    assert (clients.gradient(start) + 0.05 * start).norm() < 1e-12
    assert clients.slope_of_misalignment(start).norm() > 0.01
    displacements = np.array([0.4, 0.1, 0.02])
    begin = start.repeat(3, 1, 1)
    end = clients.round(gradalign, np.full(3, 0.05), displacement=displacements, start=begin, weight_decay=0.05)
    weights = torch.as_tensor(displacements)
    assert (whole(end, weights) < whole(begin, weights)).all()


@pytest.mark.parametrize(
    ("client", "more"),
    [
        ("momentum", {}),
        ("adam", {"client_lr": 0.01}),
        ("sgd", {"clip_norm": 0.05}),
        ("sgd", {"prox": 1.0}),
        ("nesterov", {"prox": 0.5, "clip_norm": 0.2}),
    ],
)
def test_both_forms_of_fedga_are_equal_with_any_optimizer_that_sees_gradients_alone(client, more):
    work = {"name": "fedga", **WORK, "displacement": 0.3, **more}
    same(work, {**work, "displacement_form": "each_step"}, tolerance=1e-13, client={"name": client})


def test_numbers_by_hand():
    """f1 = x^2 / 2, f2 = 1.5 (x - 3)^2 from x = 1: slope of the misalignment -3.5, SGD over both clients 1.485."""

    def end(method, rounds=1, **changes):
        return models({"server_lr": 0.1, **method}, rounds, HAND, init=[1.0], **changes)[-1, 0]

    assert end({"name": "regularized_gd", "misalignment_weight": 0.05}) == pytest.approx(1.25 + 0.1 * 0.05 * 3.5)
    assert [end({"name": "fedsgd"}, rounds) for rounds in (1, 2, 3)] == pytest.approx([1.25, 1.45, 1.61], abs=1e-14)
    # one client a round: the two orders of sequential SGD, by the seeds that draw them
    orders = {end({"name": "fedsgd"}, 2, clients_per_round=1, seed=seed).round(12) for seed in range(40)}
    assert {1.53, 1.44} <= orders
    assert end({"name": "aligned_linear_scaling", "client_lr": 0.1}) == pytest.approx((1.53 + 1.44) / 2, abs=1e-14)


def test_regularized_descent_reaches_what_gradalign_reaches_on_real_data():
    """To second order in the displacement: a tenth of it, a hundredth of the gap."""
    gaps = []
    for weight in (0.01, 0.001):
        one = {"name": "regularized_gd", "server_lr": 0.1, "misalignment_weight": weight}
        two = {"name": "gradalign", "server_lr": 0.1, "displacement": weight}
        gaps.append(np.abs(models(one, 3, DIGITS, init=None) - models(two, 3, DIGITS, init=None)).max())
    assert gaps[0] > 1e-8
    assert gaps[1] / gaps[0] == pytest.approx(0.01, rel=0.1)


def test_a_mean_of_others_displaces_no_less_equally():
    """The mean of the cohort, not of all clients: with reuse the displacements do not add up, and are undone."""
    work = {"name": "fedga", **WORK, "displacement": 0.3, "reuse_mean_gradient": True}
    same(work, {**work, "displacement_form": "each_step"}, task(noise=0.3), init=[2.0, -1.0, 0.5], tolerance=1e-14)
