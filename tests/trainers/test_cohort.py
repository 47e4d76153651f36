"""What a method sees of the engine: means, gradients, exchanges; with methods of several exchanges in mind."""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.role_optimizer import RoleOptimizer, first_memory
from trainers.engine.rounds.round_context import Draw, RoundContext
from trainers.engine.rounds.server_state import State
from trainers.models import quadratic
from trainers.problem import Problem, Quadratics
from trainers.registry import optimizers

sgd = optimizers()["sgd"]
HESSIANS = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 3.0]], [[4.0, 1.0], [1.0, 2.0]]])
CENTERS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
WEIGHTS = np.array([0.2, 0.3, 0.5])


def cohort(alive=(True, True)):
    losses = Quadratics(HESSIANS, CENTERS, np.zeros(3))
    model = quadratic.build(Problem("quadratic", losses), torch.float64, torch.device("cpu"))
    batches = model.source(0, None, "with_replacement").round(0, np.arange(3))
    counters = Counters.zero(2)
    weights = torch.as_tensor(WEIGHTS)
    draw = Draw(batches, weights, 1.0, weights)
    return model, Cohort(RoundContext(draw, model.oracles["closed_form"], 2, counters, np.array(alive))), counters


def column(*values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def start(model):
    return model.layout.row(torch.tensor([[[1.0, 1.0]], [[-2.0, 0.5]]], dtype=torch.float64))


def gradient(client, x):
    return HESSIANS[client] @ (x - CENTERS[client])


def test_gradients_means_and_losses():
    model, clients, _ = cohort()
    params = start(model)
    found = clients.gradients(params)
    assert found.shape == (2, 3, 16)
    for trial in range(2):
        x = params[trial, 0, :2].numpy()
        wanted = np.array([gradient(client, x) for client in range(3)])
        np.testing.assert_allclose(found[trial, :, :2].numpy(), wanted, rtol=1e-14)
        np.testing.assert_allclose(clients.mean(found)[trial, 0, :2].numpy(), WEIGHTS @ wanted, rtol=1e-14)
        losses = [0.5 * (x - CENTERS[client]) @ gradient(client, x) for client in range(3)]
        assert clients.loss(params, "batches")[trial].item() == pytest.approx(WEIGHTS @ losses, rel=1e-14)
        assert clients.loss(params, "full")[trial].item() == pytest.approx(WEIGHTS @ losses, rel=1e-14)
    assert clients.mean(found).shape == (2, 1, 16)
    torch.testing.assert_close(clients.mean(found.contiguous()), clients.mean(found), rtol=1e-14, atol=0)


@pytest.mark.parametrize("full", [False, True])
def test_gradients_beside_the_model_are_decayed_and_clipped(full):
    model, clients, counters = cohort()
    params = start(model)
    aside = torch.tensor([[[0.1, 0.0], [0.0, 0.2], [0.3, -0.1]]] * 2, dtype=torch.float64)
    aside = model.layout.row(aside)
    decay, bound = column(0.5, 0.0), column(2.0, 3.0)
    found = clients.gradients(params, weight_decay=decay, clip_norm=bound, full=full, displacement=aside, down=[params])
    for trial, client in itertools.product(range(2), range(3)):
        x = (params[trial, 0] + aside[trial, client])[:2].numpy()
        wanted = gradient(client, x) + decay[trial].item() * x
        wanted = wanted * min(1.0, bound[trial].item() / np.linalg.norm(wanted))
        np.testing.assert_allclose(found[trial, client, :2].numpy(), wanted, rtol=1e-13)
    assert counters.reported["bytes_down"].tolist() == [2 * 3 * 2 * 8] * 2
    assert counters.reported["client_gradients"].tolist() == [3, 3]


def test_gradients_of_several_batches_are_summed():
    model, clients, counters = cohort()
    params = start(model)
    found = clients.gradients(params, batches=torch.tensor([[[3]], [[1]]]))
    one = cohort()[1].gradients(params)
    torch.testing.assert_close(found, one * column(3, 1), rtol=1e-14, atol=0)
    assert counters.reported["client_gradients"].tolist() == [9, 3]


def test_control_variates_take_two_exchanges_and_remove_the_drift():
    model, clients, counters = cohort()
    params = start(model)
    gradients = clients.gradients(params)
    mean = clients.mean(gradients)
    work = LocalWork(StepPlan(column(0.05, 0.1), torch.tensor([[[4]], [[2]]])), correction=mean - gradients)
    local = clients.local(params, work, down=[mean])
    for trial, (rate, steps) in enumerate([(0.05, 4), (0.1, 2)]):
        x = params[trial, 0, :2].numpy()
        shared = WEIGHTS @ np.array([gradient(client, x) for client in range(3)])
        for client in range(3):
            y, total = x, np.zeros(2)
            for _ in range(steps):
                step = gradient(client, y) + shared - gradient(client, x)
                y, total = y - rate * step, total + step
            np.testing.assert_allclose(local.pseudo_gradient[trial, client, :2].numpy(), total, rtol=1e-12)
    model_bytes = 3 * 2 * 8
    assert {name: held.tolist() for name, held in counters.reported.items()} == {
        "exchanges": [2, 2],
        "bytes_down": [2 * model_bytes] * 2,  # the model, then the mean gradient: the clients still hold the model
        "bytes_up": [2 * model_bytes] * 2,
        "client_gradients": [3 + 12, 3 + 6],
        "examples": [3 + 12, 3 + 6],
        "slowest_examples": [1 + 4, 1 + 2],
    }


def test_trials_that_rest_use_nothing():
    model, clients, counters = cohort(alive=(False, True))
    params = start(model)
    clients.gradients(params)
    clients.local(params, LocalWork(StepPlan(column(0.1, 0.1), torch.tensor([[[4]], [[2]]]))))
    assert all(held[0] == 0 for held in counters.totals.values())
    assert counters.totals["client_gradients"][1] == 3 + 6


def test_the_loss_is_of_the_model_asked_for():
    model, clients, _ = cohort()
    params = start(model)
    clients.local(params, LocalWork(StepPlan(column(0.1, 0.1), torch.tensor([[[2]], [[2]]]))))
    kept = clients.loss(params, "batches")
    other = clients.loss(params + 1, "batches")
    assert kept.tolist() == pytest.approx(clients.loss(params.clone(), "batches").tolist(), rel=1e-14)
    assert (kept != other).all()


def test_a_state_steps_and_remembers():
    params = torch.tensor([[[1.0, 0.0]], [[2.0, 0.0]]], dtype=torch.float64)
    hyper = sgd.Hyper(momentum=column(0.0, 0.5), nesterov=False)
    optimizers = {"server": RoleOptimizer(sgd, hyper)}
    state = State(params, optimizers, first_memory(optimizers, params), column(0.1, 0.2))
    pseudo_gradient = torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]]], dtype=torch.float64)
    after = state.step(pseudo_gradient).step(pseudo_gradient)
    assert after.params[0, 0].tolist() == pytest.approx([1 - 0.6, -0.8])
    assert after.params[1, 0].tolist() == pytest.approx([2 - 0.2 * (1 + 1.5), 0.0])
    assert after.update_norm.tolist() == [5.0, 1.0]
    assert state.params is params
    kept = after.remember(variates=params).remember(more=params)
    assert set(kept.memory) == {"variates", "more"}
    assert after.memory == {}
