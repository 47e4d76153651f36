"""Every oracle of every model gives the same numbers, and they are the right ones."""

import itertools

import numpy as np
import pytest
import torch

from trainers.data.embeddings import Embedding
from trainers.engine.batches.mini_batches import cuts
from trainers.engine.layout import Layout
from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalWork
from trainers.engine.oracles.oracle import replicas
from trainers.models import cnn, mlp, quadratic, resnet, softmax
from trainers.problem import Examples, Problem, Quadratics
from trainers.registry import models

SIZES = np.array([4, 30, 9, 1, 17, 12])
FEATURES = 5


def examples(targets, seed=0):
    generator = np.random.default_rng(seed)
    rows = int(SIZES.sum())
    return Examples(
        generator.normal(size=(rows, FEATURES)), targets_of(targets, generator, rows), np.cumsum(SIZES) - SIZES, SIZES,
        targets,
    )  # fmt: skip


def targets_of(kind, generator, rows):
    if kind == "classes":
        return generator.integers(0, 3, rows)
    return generator.random((rows, 3)) < 0.4 if kind == "tags" else generator.normal(size=(rows, 2))


PICTURES = {
    "mlp": (2, 3),
    "tagged": (2, 3),
    "numbered": (2, 3),
    "cnn": (1, 8, 8),
    "varied": (3, 6, 5),
    "deep": (2, 7, 8),
    "resnet": (2, 4, 4),
    "embedded": (3,),
}
OTHERS = [
    name for name in models() if models()[name].TARGETS == "classes" and name not in ("softmax", "mlp", "cnn", "resnet")
]
NETWORKS = {
    **{name: (models()[name], {}) for name in OTHERS},
    "mlp": (mlp, {"hidden": [6, 4], "dropout": 0.3}),
    "cnn": (cnn, {"filters": [2, 3], "kernel": 5, "dense": 5}),
    "varied": (cnn, {"filters": [2], "kernel": 3, "dense": 6, "dropout": 0.25, "crop": 2, "flip": True}),
}

AGREEING = {
    "deep": (cnn, {"filters": [4, 2], "kernel": 3, "dense": [6, 4], "dropout": [0.2, 0, 0.3]}),
    "normed": (cnn, {"filters": [2, 4], "kernel": 3, "padding": "none", "pooling": "last", "groups": 2, "dense": 0}),
    "resnet": (resnet, {"blocks": [1, 1], "width": 2}),
    "tagged": (mlp, {"hidden": [6, 4]}),
    "numbered": (mlp, {"hidden": [6, 4], "dropout": 0.3}),
    "embedded": (mlp, {"hidden": [6, 4], "dropout": 0.3, "embedded": (Embedding(1, 4, 2), Embedding(2, 3, 1))}),
    "tagged_images": (cnn, {"filters": [2], "kernel": 3, "dense": 6}),
}
"""Other forms of networks, which are checked against autograd alone."""

KIND = {"tagged": "tags", "numbered": "numbers", "tagged_images": "tags"}
"""Targets of networks, where these are not classes."""


def pictures(name, seed=0):
    generator = np.random.default_rng(seed)
    rows = int(SIZES.sum())
    inputs = generator.normal(size=(rows, *PICTURES.get(name, (1, 8, 8))))
    if name == "embedded":
        inputs[:, 1:] = generator.integers(0, (5, 4), (rows, 2))
    kind = KIND.get(name, "classes")
    return Examples(inputs, targets_of(kind, generator, rows), np.cumsum(SIZES) - SIZES, SIZES, kind)


def build(name, dtype=torch.float64, device=torch.device("cpu")):  # noqa: B008
    if name in (networks := {**NETWORKS, **AGREEING}):
        module, settings = networks[name]
        data = pictures(name)
        problem = Problem(name, data, test=data, model_settings={"classes": 3, **settings})
        return module.build(problem, dtype, device)
    if name == "softmax":
        data = examples("classes")
        return softmax.build(Problem("softmax", data, test=data, model_settings={"classes": 3}), dtype, device)
    if name in ("linear", "logistic"):
        data = examples(models()[name].TARGETS)
        return models()[name].build(Problem(name, data, test=data), dtype, device)
    generator = np.random.default_rng(1)
    factors = generator.normal(size=(6, 4, 4))
    hessians = factors @ factors.transpose(0, 2, 1) + np.eye(4)
    losses = Quadratics(hessians, generator.normal(size=(6, 4)), generator.normal(size=6))
    return quadratic.build(Problem("quadratic", losses), dtype, device)


MODELS = ["softmax", "linear", "logistic", "quadratic", *NETWORKS]


def models_and_vectors(model, trials=3, clients=6):
    generator = torch.Generator().manual_seed(0)

    def draw(count):
        rows = torch.randn(trials, count, model.layout.count, generator=generator, dtype=torch.float64)
        return model.layout.row(rows)

    return draw(clients), draw(1), draw(clients)


def round_of(model, batch_size):
    return model.source(0, batch_size, "with_replacement").round(0, np.arange(model.clients))


def batch_of(model, batch_size, clients=6):
    return round_of(model, batch_size).batch(0, clients)


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", ["softmax", "linear", "logistic", *NETWORKS, *AGREEING])
def test_all_oracles_agree(name, batch_size):
    model = build(name)
    params, broadcast, vectors = models_and_vectors(model, trials=2)
    batch, reference = batch_of(model, batch_size), model.oracles["autograd"]
    others = [oracle for oracle in model.oracles.values() if oracle is not reference]
    assert others
    for point in (params, broadcast):
        wanted_loss, wanted = reference.value_and_grad(point, batch)
        products = [(vector, reference.hvp(point, batch, vector)) for vector in (vectors, vectors[:, :1])]
        close(reference.value(point, batch), wanted_loss)
        for oracle in others:
            loss, gradient = oracle.value_and_grad(point, batch)
            close(loss, wanted_loss)
            close(gradient, wanted)
            close(oracle.value(point, batch), wanted_loss)
            for vector, product in products:
                close(oracle.hvp(point, batch, vector), product)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_hessian_products_are_derivatives_and_pads_stay_zero(name, batch_size):
    model = build(name)
    pads = model.layout.row(torch.ones(model.layout.count, dtype=torch.float64)) == 0
    assert pads.any()
    params, _, vectors = models_and_vectors(model)
    if name in NETWORKS:
        params = 0.3 * params  # away from steep scores, whose third derivatives a difference quotient shows
    batch = batch_of(model, batch_size)
    step = 1e-6 if name in NETWORKS else 1e-5  # small beside the distance to a kink
    for oracle in model.oracles.values():
        ahead, slope_ahead = oracle.value_and_grad(params + step * vectors, batch)
        behind, slope_behind = oracle.value_and_grad(params - step * vectors, batch)
        gradient = oracle.value_and_grad(params, batch)[1]
        slope = (gradient * vectors).sum(-1)
        torch.testing.assert_close((ahead - behind) / (2 * step), slope, rtol=1e-7, atol=1e-7)
        bend = oracle.hvp(params, batch, vectors)
        torch.testing.assert_close((slope_ahead - slope_behind) / (2 * step), bend, rtol=1e-6, atol=1e-6)
        assert (gradient[..., pads] == 0).all()
        assert (bend[..., pads] == 0).all()


def test_convolutions_down_to_one_pixel_with_examples_in_pieces(monkeypatch):
    monkeypatch.setattr("trainers.models._by_hand._ALONE", 3)
    data = Examples(pictures("cnn").inputs[:, :, :4, :5], pictures("cnn").targets, np.cumsum(SIZES) - SIZES, SIZES)
    settings = {"classes": 3, "filters": [1, 2], "kernel": 1, "dense": 3}
    model = cnn.build(Problem("cnn", data, model_settings=settings), torch.float64, torch.device("cpu"))
    params, _, vectors = models_and_vectors(model, trials=1)
    batch = batch_of(model, 7)
    by_hand, reference = model.oracles["by_hand"], model.oracles["autograd"]
    for one, other in zip(by_hand.value_and_grad(params, batch), reference.value_and_grad(params, batch), strict=True):
        close(one, other)
    close(by_hand.hvp(params, batch, vectors), reference.hvp(params, batch, vectors))


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", MODELS)
def test_steps_in_place_are_those_of_gradients_and_products(name, batch_size):
    """Descent and products with a rate for each trial, with a change in between; gradients over old numbers."""
    model = build(name)
    params, broadcast, vectors = models_and_vectors(model)
    batch = batch_of(model, batch_size)
    rate = torch.tensor([0.1, 0.0, 0.7], dtype=torch.float64).view(-1, 1, 1)
    for oracle in model.oracles.values():
        loss, gradient = oracle.value_and_grad(params, batch)
        models = replicas(params, *params.shape).copy_(params)
        found = oracle.descend_(models, batch, rate, lambda some: models[:, some].mul_(0.5), want_loss=True)  # noqa: B023 (called at once)
        close(found, loss)
        close(models, 0.5 * params - rate * gradient)
        total = replicas(params, *params.shape).fill_(float("inf"))
        close(oracle.gradient_(params, batch, total, want_loss=True), loss)
        close(total, gradient)
        for point in (params, broadcast):
            vector = replicas(params, *params.shape).copy_(vectors)
            wanted = 0.5 * vectors - rate * oracle.hvp(point, batch, vectors)
            oracle.bend_(point, batch, vector, rate, lambda some: vector[:, some].mul_(0.5))  # noqa: B023 (called at once)
            close(vector, wanted)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_added_in_place_to_the_first_clients_and_trials_only(name):
    model = build(name)
    params, _, _ = models_and_vectors(model)
    before = params.clone()
    batch = batch_of(model, 7, clients=4)
    for oracle in model.oracles.values():
        total = replicas(params, 3, 6, model.layout.size).fill_(1)
        loss = oracle.add_gradient_(params[:2, :4], batch, total[:2], want_loss=True)
        wanted_loss, wanted = oracle.value_and_grad(params[:2, :4], batch)
        assert loss.shape == (2, 4)
        close(loss, wanted_loss)
        close(total[:2, :4], wanted + 1)
        assert (total[2] == 1).all()
        assert (total[:, 4:] == 1).all()
        assert torch.equal(params, before)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", ["softmax", "linear", "logistic"])
def test_rows_of_data_without_pads_give_the_same_models(name, batch_size, monkeypatch, small_examples):
    """Pads of large data are left out; the oracles then write into a part of each row of the model."""
    padded = build(name)
    monkeypatch.setattr("trainers.models._affine._MOST_PADS", 0)
    bare = build(name)
    assert bare.inputs.shape[1] == FEATURES + 1 < padded.inputs.shape[1]
    _, broadcast, _ = models_and_vectors(padded)
    work = LocalWork(StepPlan(torch.full((3, 1, 1), 0.1, dtype=torch.float64), torch.full((3, 1, 1), 4)))
    for oracle in padded.oracles:
        one, other = (
            run_local_steps(model.oracles[oracle], round_of(model, batch_size), broadcast, work, np.ones(3, bool))
            for model in (padded, bare)
        )
        close(one.pseudo_gradient, other.pseudo_gradient)
        close(one.first_loss, other.first_loss)


def test_quadratics_by_hand():
    losses = Quadratics(np.array([[[2.0, 1.0], [1.0, 3.0]]]), np.array([[1.0, -1.0]]), np.array([0.25]))
    model = quadratic.build(Problem("quadratic", losses), torch.float64, torch.device("cpu"))
    params = model.layout.row(torch.tensor([[[2.0, 1.0]]], dtype=torch.float64))  # away from the center by (1, 2)
    batch = model.source(0, None, "with_replacement").round(0, np.array([0])).batch(0, 1)
    loss, gradient = model.oracles["closed_form"].value_and_grad(params, batch)
    assert loss.item() == 0.25 + 0.5 * (1 * 4 + 2 * 7)
    assert gradient[0, 0, :2].tolist() == [4.0, 7.0]
    assert model.oracles["closed_form"].hvp(params, batch, params)[0, 0, :2].tolist() == [5.0, 5.0]
    found = model.evaluate(params)
    assert found["loss"].item() == pytest.approx(9.25, rel=1e-14)
    assert found["distance"].item() == pytest.approx(5**0.5, rel=1e-14)


def test_accuracy_of_clients_ignores_filled_up_examples():
    model = build("softmax")
    data = examples("classes")
    _, params, _ = models_and_vectors(model)
    batches = round_of(model, None)
    found = model.accuracy(params, batches.full())
    assert build("linear").accuracy(params, batches.full()) is None
    for place, client in enumerate(batches.clients):
        rows = slice(data.offsets[client], data.offsets[client] + data.sizes[client])
        weight = model.layout.views(params)["weight"][1, 0].numpy()
        scores = data.inputs[rows] @ weight[:, :FEATURES].T + weight[:, FEATURES]
        right = (scores.argmax(1) == data.targets[rows]).mean()
        assert found[1, place].item() == pytest.approx(right, rel=1e-12)


def test_evaluation_in_pieces_changes_nothing(monkeypatch):
    model = build("softmax")
    _, params, _ = models_and_vectors(model)
    whole = model.evaluate(params)
    monkeypatch.setattr("trainers.models._affine._EVALUATED", 40)
    pieces = model.evaluate(params)
    assert whole.keys() == pieces.keys()
    for name, values in whole.items():
        close(values, pieces[name])


def test_large_scores_do_not_overflow():
    model = build("softmax")
    params = 1e4 * models_and_vectors(model)[0]
    for oracle in model.oracles.values():
        loss, gradient = oracle.value_and_grad(params, batch_of(model, None))
        assert loss.isfinite().all()
        assert gradient.isfinite().all()


def test_cuts_cost_the_least():
    sizes = [90, 60, 58, 20, 19, 19, 3, 1]

    def cost(edges):
        pieces = itertools.pairwise(edges)
        return sum((stop - start) * sizes[start] + 25 for start, stop in pieces)

    every = []
    for mask in range(2 ** (len(sizes) - 1)):
        inner = [place + 1 for place in range(len(sizes) - 1) if mask >> place & 1]
        every.append([0, *inner, len(sizes)])
    assert cost(cuts(sizes, group_cost=25)) == min(cost(edges) for edges in every)


def test_layout_views_and_vectors_fit():
    layout = Layout.of({"weight": (3, 2, 5), "bias": (1,)}, padded_rows=("weight",))
    assert layout.count == 31
    assert layout.size == 6 * 16 + 16
    vector = torch.arange(62.0).view(2, 31)
    params = layout.row(vector)
    assert torch.equal(layout.vector(params), vector)
    assert params.sum() == vector.sum()
    assert layout.views(params)["weight"].shape == (2, 3, 2, 5)
    with pytest.raises(ValueError, match="31 parameters must get as many numbers, got 30"):
        layout.row(vector[:, :30])
