"""Modules of layers one after another get oracles by hand, which have autograd's derivatives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.trainers.test_oracles import batch_of, close, models_and_vectors, pictures
from trainers.engine.oracles.oracle import replicas
from trainers.models._network import Network
from trainers.problem import Problem

SIDE, WORDS = (2, 8, 8), 11
FLAT = int(np.prod(SIDE))


class Functions(nn.Module):
    """Functions and methods in place of layers, and the usual ways to flatten."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 4, 3)
        self.hidden, self.scores = nn.Linear(4, 6, bias=False), nn.Linear(6, 3)

    def forward(self, images):
        inner = F.max_pool2d(F.relu(self.first(images)), 2)
        inner = F.leaky_relu(self.second(inner), 0.1).mean((2, 3))
        inner = inner.view(inner.size(0), -1)
        inner = torch.tanh(self.hidden(inner.reshape(inner.shape[0], -1)))
        return self.scores(torch.flatten(inner, 1))


class Sizes(nn.Module):
    """The number of examples in a tuple, negative dimensions, and functions that overwrite what they get."""

    def __init__(self):
        super().__init__()
        self.hidden, self.scores = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, images):
        inner = self.hidden(images.reshape((images.shape[0], 4, -1)).permute(0, -1, 1)).relu_()
        return self.scores(inner.mean(1))


class Words(nn.Module):
    """The mean of embeddings; `padding` is a word that is not trained."""

    def __init__(self, padding):
        super().__init__()
        self.table = nn.Embedding(WORDS, 5, padding_idx=padding)
        self.scores = nn.Linear(5, 3)

    def forward(self, words):
        return self.scores(self.table(words).mean(1))


def convolutional(*layers, channels=4, side=4):
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *layers, nn.Flatten(), nn.Linear(channels * side * side, 3))


STACKS = {
    "gelu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FLAT, 7), nn.GELU(), nn.Linear(7, 3)),
    "one_layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FLAT, 3)),
    "without_biases": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(FLAT, 7, bias=False), nn.ReLU(), nn.Linear(7, 3, bias=False)
    ),
    "relu_first": lambda: nn.Sequential(nn.ReLU(), nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(FLAT, 3)),
    "relu_after_tanh": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FLAT, 7), nn.Tanh(), nn.ReLU(), nn.Linear(7, 3)),
    "layer_norms": lambda: nn.Sequential(
        nn.LayerNorm(SIDE), nn.Flatten(), nn.Linear(FLAT, 6), nn.LayerNorm(6), nn.SiLU(), nn.RMSNorm(6), nn.Linear(6, 3)
    ),
    "on_a_matrix": lambda: nn.Sequential(nn.Linear(8, 5), nn.LayerNorm(5, bias=False), nn.Flatten(), nn.Linear(80, 3)),
    "pool_after_relu": lambda: convolutional(nn.ReLU(), nn.MaxPool2d(2)),
    "pool_before_relu": lambda: convolutional(nn.MaxPool2d(3, 2, 1), nn.ReLU()),
    "pool_after_gelu": lambda: convolutional(nn.GELU(), nn.MaxPool2d(2)),
    "two_pools": lambda: convolutional(nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2), side=2),
    "group_norm": lambda: convolutional(nn.GroupNorm(2, 4), nn.ReLU(), nn.AvgPool2d(2)),
    "strided": lambda: convolutional(nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=False), nn.ELU(), channels=6),
    "same": lambda: convolutional(nn.Conv2d(4, 6, 3, padding="same", dilation=2), nn.MaxPool2d(2), channels=6),
    "in_sequence": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(2, 3, 5), nn.ReLU(), nn.Flatten(), nn.Linear(180, 3)),
    "in_place": lambda: convolutional(nn.LeakyReLU(0.2, inplace=True), nn.MaxPool2d(2), nn.SiLU(inplace=True)),
    "pool_of_rows": lambda: nn.Sequential(
        nn.Flatten(1, 2), nn.Linear(8, 6), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 3)
    ),
    "functions": Functions,
    "sizes": Sizes,
    "words": lambda: Words(None),
    "padded": lambda: Words(4),
}


def network(make):
    data = pictures("stack")
    shape, generator = (len(data.targets), *SIDE), np.random.default_rng(3)
    inputs = generator.normal(size=shape)
    if isinstance(make(), Words):
        inputs = generator.integers(0, WORDS, (len(data.targets), 6))
    data = replace(data, inputs=inputs)
    return Network(
        Problem("", data, test=data, model_settings={"classes": 3}), make, torch.float64, torch.device("cpu")
    )


def check(model):
    """Losses, gradients, steps and Hessian-vector products of all oracles."""
    reference = model.oracles["autograd"]
    params, broadcast, vectors = models_and_vectors(model)
    rate = torch.tensor([0.1, 0.0, 0.7], dtype=torch.float64).view(-1, 1, 1)
    for batch, point in ((batch_of(model, None), broadcast), (batch_of(model, 7), params)):
        loss, gradient = reference.value_and_grad(point, batch)
        product = reference.hvp(point, batch, vectors)
        for name in model.oracles.keys() - {"autograd", "vmap", "loop"}:
            oracle = model.oracles[name]
            for one, other in zip(oracle.value_and_grad(point, batch), (loss, gradient), strict=True):
                close(one, other)
            close(oracle.value(point, batch), loss)
            total = replicas(params, *params.shape).fill_(float("inf"))
            close(oracle.gradient_(point, batch, total, want_loss=True), loss)
            close(total, gradient)
            close(oracle.hvp(point, batch, vectors), product)
            if point is params:
                models = replicas(params, *params.shape).copy_(params)
                oracle.descend_(models, batch, rate)
                close(models, params - rate * gradient)


@pytest.mark.parametrize("name", STACKS)
def test_derivatives_are_those_of_autograd(name):
    model = network(STACKS[name])
    by_hand = model.oracles.keys() & {"stacked", "by_hand"}
    assert len(by_hand) == 1
    assert "stacked" in by_hand or "example_space" not in model.oracles
    check(model)


def test_large_examples_are_cut_into_pieces():
    """Of 2 x 512 x 512 numbers in float64, 32 of 4 MiB each are 128 MiB."""
    model = network(lambda: nn.Sequential(nn.Upsample((512, 512)), nn.AvgPool2d(256), nn.Flatten(), nn.Linear(8, 3)))
    assert 15 < model.oracles["stacked"].examples <= 32 < network(STACKS["gelu"]).oracles["stacked"].examples
    params, batch = models_and_vectors(model, trials=1)[0], batch_of(model, None)
    found, wanted = (model.oracles[name].value_and_grad(params, batch) for name in ("stacked", "loop"))
    close(found[0], wanted[0])
    close(found[1], wanted[1])


LAYERS = (nn.ReLU, nn.GELU, nn.Tanh, nn.Softplus, nn.Identity, lambda: nn.LayerNorm(4), lambda: nn.Linear(4, 4))


@given(st.lists(st.sampled_from(LAYERS), max_size=6))
@settings(max_examples=6, deadline=None)
def test_any_order_of_layers(layers):
    model = network(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(FLAT, 4), *(one() for one in layers), nn.Linear(4, 3))
    )
    assert list(model.oracles) == ["stacked", "example_space", "loop", "vmap", "autograd"]
    check(model)


class _Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.scores = nn.Linear(FLAT, FLAT), nn.Linear(FLAT, 3)

    def forward(self, images):
        rows = images.flatten(1)
        return self.scores(rows + self.hidden(rows))


class _Looks(_Branch):
    def forward(self, images):
        rows = self.hidden(images.flatten(1))
        return self.scores(rows if bool(rows.sum() > 0) else 0.5 * rows)


class _OtherMode(_Branch):
    def forward(self, images):
        rows = self.hidden(images.flatten(1))
        return self.scores(rows.tanh() if self.training else rows.sigmoid())


class _Twice(_Branch):
    def forward(self, images):
        return self.scores(self.hidden(self.hidden(images.flatten(1))))


class _Unused(_Branch):
    def forward(self, images):
        return self.scores(images.flatten(1))


class _OwnParameter(_Unused):
    def __init__(self):
        super().__init__()
        del self.hidden
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, images):
        return super().forward(images) * self.scale


def _frozen():
    module = STACKS["gelu"]()
    module[1].bias.requires_grad_(False)
    return module


def _weight_normed():
    module = STACKS["gelu"]()
    torch.nn.utils.parametrizations.weight_norm(module[1])
    return module


def _hooked(register, layer):
    """A hook or another `forward`, which changes large numbers only."""

    def make():
        module = STACKS["gelu"]()
        register(module if layer is None else module[layer])
        return module

    return make


def _forward_of_its_own(layer):
    forward = type(layer).forward
    layer.forward = lambda inputs: forward(layer, inputs).clamp(-1e6, 1e6)


class _OwnCall(nn.Sequential):
    def __call__(self, inputs):
        return super().__call__(inputs).clamp(-1e6, 1e6)


def _clamped(_, *held):
    return held[-1].clamp(-1e6, 1e6) if isinstance(held[-1], torch.Tensor) else (held[-1][0].clamp(-1e6, 1e6),)


HOOKS = {
    "forward_hook": lambda layer: layer.register_forward_hook(_clamped),
    "forward_pre_hook": lambda layer: layer.register_forward_pre_hook(_clamped),
    "backward_hook": lambda layer: layer.register_full_backward_hook(lambda *_: None),
    "backward_pre_hook": lambda layer: layer.register_full_backward_pre_hook(lambda *_: None),
    "own_forward": _forward_of_its_own,
}


class _Doubled(_Branch):
    def forward(self, images):
        rows = self.hidden(images.flatten(1))
        return self.scores(rows + rows)


class _LooksIfItCan(_Branch):
    def forward(self, images):
        rows = self.hidden(images.flatten(1))
        return self.scores(0.5 * rows if torch.is_tensor(rows) and bool(rows.abs().max() > 9) else rows)


class _WithoutGradient(_Branch):
    """Nothing of the first layer is seen in any number, since the scores are 0."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.scores.weight)

    def forward(self, images):
        with torch.no_grad():
            rows = self.hidden(images.flatten(1))
        return self.scores(rows)


OTHERS = {
    "branch": _Branch,
    "looks_at_numbers": _Looks,
    "other_mode": _OtherMode,
    "layer_twice": _Twice,
    "unused": _Unused,
    "own_parameter": _OwnParameter,
    "frozen": _frozen,
    "weight_norm": _weight_normed,
    "doubled": _Doubled,
    "looks_if_it_can": _LooksIfItCan,
    "without_gradient": _WithoutGradient,
    "own_call": lambda: _OwnCall(*STACKS["gelu"]()),
    **{f"{name}_of_a_layer": _hooked(hook, 3) for name, hook in HOOKS.items()},
    **{f"{name}_of_all": _hooked(HOOKS[name], None) for name in ("forward_hook", "forward_pre_hook", "own_forward")},
    "unknown_layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FLAT, 4), nn.PReLU(), nn.Linear(4, 3)),
    "circular": lambda: convolutional(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), nn.MaxPool2d(2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_are_trained_by_autograd(name):
    model = network(OTHERS[name])
    assert list(model.oracles) == ["loop", "vmap", "autograd"]
    assert model.module.training
