"""What a method sees of the engine: means, gradients, exchanges; with methods of several exchanges in mind."""

import itertools

import numpy as np
import pytest
import torch

from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.round_context import Draw, RoundContext
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
