"""Trials in bfloat16: gradients are computed in it, everything else in float32."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainers.test_models import CNN, MLP, document, forced, of
from tests.trainers.test_oracles import NETWORKS, batch_of, build, models_and_vectors, pictures
from trainers.curvature import estimate_curvature
from trainers.engine.oracles.oracle import replicas
from trainers.engine.packs.pack import Pack
from trainers.errors import SpecError
from trainers.models._network import Network
from trainers.problem import Examples, Problem
from trainers.registry import models
from trainers.trial.document import parse

BITS = 2.0**-8  # of a factor
TYPES = {"float32", "bfloat16"}
ORACLES = [(MLP, "stacked"), (CNN, "by_hand"), (CNN, "loop"), (CNN, "vmap")]


def apart(one, other):
    """The relative distance."""
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_oracles_compute_in_it_and_agree_up_to_its_rounding(name, batch_size):
    model, exact = build(name, torch.bfloat16), build(name, torch.float32)
    params, _, vectors = (0.3 * given.float() for given in models_and_vectors(model))
    batch, same = batch_of(model, batch_size), batch_of(exact, batch_size)
    loss, gradient = exact.oracles["autograd"].value_and_grad(params, same)
    bend = exact.oracles["autograd"].hvp(params, same, vectors)
    rounded = model.oracles["autograd"].value_and_grad(params, batch)[1]
    rounded_bend = model.oracles["autograd"].hvp(params, batch, vectors)
    rate = torch.tensor([0.1, 0.0, 0.7]).view(-1, 1, 1)
    assert len(model.oracles) == 4
    for oracle in model.oracles.values():
        found_loss, found = oracle.value_and_grad(params, batch)
        assert found.dtype == found_loss.dtype == torch.float32
        torch.testing.assert_close(found_loss, loss, rtol=0, atol=0.03)
        torch.testing.assert_close(oracle.value(params, batch), found_loss)
        assert BITS / 10 < apart(found, gradient) < 20 * BITS
        assert apart(found, rounded) < 10 * BITS
        product = oracle.hvp(params, batch, vectors)
        assert BITS / 10 < apart(product, bend) < 20 * BITS
        assert apart(product, rounded_bend) < 10 * BITS
        moved = replicas(params, *params.shape).copy_(params)
        oracle.descend_(moved, batch, rate)
        assert torch.equal(moved[1], params[1])  # models are not rounded
        assert apart(params - moved, rate * gradient) < 20 * BITS
        turned = replicas(params, *params.shape).copy_(vectors)
        oracle.bend_(params, batch, turned, rate)
        assert torch.equal(turned[1], vectors[1])
        assert apart(vectors - turned, rate * bend) < 20 * BITS


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_weights_of_many_examples_get_the_same_gradients_by_hand(name):
    """More than 64 examples, and layers that are large and small: the products are computed and added in other ways."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(140, 1, 16, 16))
    sizes = np.array([90, 50])
    data = Examples(inputs, generator.integers(0, 3, 140), np.array([0, 90]), sizes)
    settings = {"mlp": {"hidden": [160]}, "cnn": {"filters": [8], "dense": 80}}[name]
    problem = Problem(name, data, model_settings={"classes": 3, **settings})
    model = models()[name].build(problem, torch.bfloat16, torch.device("cpu"))
    params = model.start(None, 0).expand(1, 2, -1).clone()
    batch = batch_of(model, None, clients=2)
    by_hand, reference = next(iter(model.oracles.values())), model.oracles["autograd"]
    assert max(entry.count for entry in model.layout.entries) > 32768
    wanted = reference.value_and_grad(params, batch)[1]
    over = torch.full_like(params, 3.0)
    by_hand.gradient_(params, batch, over)
    views = model.layout.views
    for found in (by_hand.value_and_grad(params, batch)[1], over):
        for tensor, other in zip(views(found).values(), views(wanted).values(), strict=True):
            assert apart(tensor, other) < 5 * BITS


class Scaled(nn.Module):
    """Has a buffer, and checks in which type it runs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("scale", torch.eye(6))
        self.seen = set()

    def forward(self, inputs):
        self.seen.add(inputs.dtype)
        return self.layer(inputs.flatten(1) @ self.scale)


def test_modules_of_plug_ins_run_in_it_with_their_buffers():
    data = pictures("mlp")
    model = Network(Problem("", data, test=data), Scaled, torch.bfloat16, torch.device("cpu"))
    params = model.start(None, 0).expand(1, 6, -1).clone()
    batch = batch_of(model, 7)
    for name, oracle in model.oracles.items():
        model.module.seen.clear()
        assert oracle.value_and_grad(params, batch)[1].isfinite().all(), name
        assert model.module.seen == {torch.bfloat16}, name
    model.module.seen.clear()
    model.evaluate(params[:, :1])
    assert model.module.seen == {torch.float32}


def test_models_are_measured_in_single_precision():
    """Evaluations of the first model, on test data, on all training data and after no adaptation, and curvature."""
    given = document(
        {"name": "mlp", "hidden": [12]},
        rounds=1,
        report=["full_loss"],
        adaptation={"steps": [0, 2], "client_lr": 0.1, "support": 0.5},
    )
    first = {dtype: Pack.from_spec(parse({**given, "dtype": dtype})).advance()[0] for dtype in TYPES}
    measured = set(first["float32"]) - {"wall_seconds", "adapted_loss_2", "adapted_accuracy_2"}
    assert {"test_loss", "test_accuracy", "full_loss", "adapted_loss_0", "adapted_accuracy_0"} <= measured
    assert {name: first["bfloat16"][name] for name in measured} == {name: first["float32"][name] for name in measured}
    assert first["bfloat16"]["adapted_loss_2"] != first["float32"]["adapted_loss_2"]
    estimates = [estimate_curvature(parse({**given, "dtype": dtype})) for dtype in TYPES]
    assert estimates[0] == estimates[1]


@pytest.mark.parametrize(("model", "oracle"), ORACLES)
def test_a_trial_learns_as_in_single_precision(model, oracle):
    lines = {dtype: forced(parse(document(model, dtype=dtype, rounds=8)), oracle).advance() for dtype in TYPES}
    rounded, exact = lines["bfloat16"], lines["float32"]
    assert len(rounded) == len(exact) == 9
    assert rounded[0]["test_loss"] == exact[0]["test_loss"]  # evaluated in single precision
    for name in ("train_loss", "test_loss", "update_norm"):
        one, other = ([line[name] for line in own[1:]] for own in (rounded, exact))
        assert one == pytest.approx(other, rel=0.05)
        assert one != other
    assert rounded[-1]["test_loss"] < rounded[0]["test_loss"]


@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_on_a_cpu_tf32_is_single_precision(name):
    lines = {
        dtype: Pack.from_spec(parse(document(name, dtype=dtype, members=[{}]))).advance()
        for dtype in ("tf32", "float32")
    }
    assert of(lines["tf32"], 0) == of(lines["float32"], 0)


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ({"name": "digits", "clients": 5}, "for the model softmax, got"),
        ({"name": "linear_regression", "clients": 6, "dimension": 3}, "for the model linear, got"),
        ({"name": "quadratic", "problem": "random", "clients": 5, "dimension": 3}, "for the model quadratic, got"),
    ],
)
def test_models_that_do_not_take_it_are_refused_before_training(task, wanted):
    with pytest.raises(SpecError, match=wanted) as caught:
        parse({**document("mlp", dtype="bfloat16"), "task": task, "batch_size": None})
    assert str(caught.value).startswith("dtype must be float32 or float64 ")


def test_a_model_that_only_the_task_knows_is_refused_when_it_is_built():
    spec = parse(document("softmax"))
    with pytest.raises(SpecError, match="for the model softmax, got dtype=") as caught:
        Pack.from_spec(replace(spec, dtype="bfloat16"), device="cpu")
    assert caught.value.path == "dtype"
