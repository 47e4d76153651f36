"""Exact MAML: finite differences, and the bias of sharing batches."""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.round_context import Draw, RoundContext
from trainers.models import softmax
from trainers.problem import Examples, Problem

from .four_clients import train


def column(*values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def cohort(inputs, targets, clients, batch_size, trials=1):
    """Clients with equally many examples of a softmax regression, and their cohort."""
    sizes = np.full(clients, len(inputs) // clients)
    train = Examples(inputs, targets, np.cumsum(sizes) - sizes, sizes)
    model = softmax.build(Problem("softmax", train), torch.float64, torch.device("cpu"))
    batches = model.source(0, batch_size, "with_replacement").round(0, np.arange(clients))
    weights = torch.full((clients,), 1 / clients, dtype=torch.float64)
    counters, alive = Counters.zero(trials), np.ones(trials, bool)
    oracle = next(iter(model.oracles.values()))
    context = RoundContext(Draw(batches, weights, 1.0, weights), oracle, model.layout.count, counters, alive)
    return model, oracle, batches, Cohort(context)


@pytest.mark.parametrize("batch_size", [3, None])
def test_it_is_the_slope_of_the_loss_after_adaptation(batch_size):
    """Central differences of f(y_K+1; the same batches), for trials of one pack with 2 and 3 steps."""
    generator = np.random.default_rng(0)
    model, oracle, batches, clients = cohort(
        generator.standard_normal((12, 3)), generator.integers(0, 3, 12), 2, batch_size, trials=2
    )
    rates, steps, prox, decay = (0.7, 0.4), (2, 3), (0.3, 0.0), (0.1, 0.2)
    start = model.start(generator.standard_normal(model.layout.count).tolist(), 0)
    falling = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.5, 1.0]], dtype=torch.float64)
    plan = StepPlan(column(*rates), torch.tensor(steps).view(-1, 1, 1), relative_rates=falling)
    work = LocalWork(plan, prox=column(*prox), weight_decay=column(*decay))
    found = clients.meta_gradients(start.repeat(2, 1, 1), work).pseudo_gradient

    def adapted_loss(x, trial):
        y = x
        for step in range(steps[trial]):
            slope = oracle.value_and_grad(y, batches.batch(step, 2))[1] + decay[trial] * y
            y = y - rates[trial] * falling[trial, step] * (slope + prox[trial] * (y - x))
        return oracle.value(y, batches.batch(steps[trial], 2)) + decay[trial] / 2 * (y * y).sum(-1)

    for trial, place in itertools.product(range(2), range(model.layout.count)):
        nudge = 1e-5 * torch.eye(len(start), dtype=torch.float64)[place]
        ends = [adapted_loss((start + sign * nudge).view(1, 1, -1), trial) for sign in (1, -1)]
        wanted = (ends[0] - ends[1])[0] / 2e-5
        np.testing.assert_allclose(found[trial, :, place], wanted, rtol=1e-7, atol=1e-9)


def test_independent_batches_take_the_bias_away():
    """Many clients with the same two examples, one drawn a step: their mean is near the mean over all draws."""
    count, rate = 20000, 1.5
    inputs, targets = np.array([[1.0, -2.0], [0.5, 1.5]]), np.array([0, 1])
    model, _, _, clients = cohort(np.tile(inputs, (count, 1)), np.tile(targets, count), count, 1)
    single, one, _, _ = cohort(inputs, targets, 2, None)  # a client for each example
    start = model.start([0.3, -0.2, 0.1, -0.4, 0.6, 0.2], 0).view(1, 1, -1)
    batch = single.source(0, None, "with_replacement").round(0, np.arange(2)).full()
    ends = start - rate * one.value_and_grad(start, batch)[1]
    after = [one.value_and_grad(ends[:, i : i + 1], batch)[1].mean(1, keepdim=True) for i in range(2)]
    bent = [one.hvp(start, batch, slope) for slope in after]
    shared = sum(
        slope - rate * product[:, i : i + 1] for i, (slope, product) in enumerate(zip(after, bent, strict=True))
    )
    apart = sum(slope - rate * product.mean(1, keepdim=True) for slope, product in zip(after, bent, strict=True))
    work = LocalWork(StepPlan(column(rate), torch.ones(1, 1, 1, dtype=torch.int64)))
    for unbiased, mean, other in ((False, shared / 2, apart / 2), (True, apart / 2, shared / 2)):
        found = clients.meta_gradients(start, work, unbiased=unbiased).pseudo_gradient
        error = (found.std(1, keepdim=True) / count**0.5 + 1e-12) * 5
        assert ((clients.mean(found) - mean).abs() < error).all()
        assert ((clients.mean(found) - other).abs() > 2 * error).any()


def test_client_lr_zero_is_the_gradient_on_the_last_batch():
    noisy = {"name": "quadratic", "problem": "random", "clients": 5, "dimension": 3, "gradient_noise": 0.5}
    shared = {"client_lr": 0.0, "server_lr": 0.1}
    one = train({**shared, "name": "maml", "local_steps": 2}, 5, noisy, clients_per_round=3)
    two = train({**shared, "name": "fomaml", "local_steps": 3}, 5, noisy, clients_per_round=3)
    for line, other in zip(one, two, strict=True):
        assert line["params"] == pytest.approx(other["params"], abs=1e-14)
        wanted = other["train_loss"] if line["round"] == 0 else pytest.approx(other["train_loss"], abs=1e-14)
        assert line["train_loss"] == wanted
